package jobs

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state"
)

// TestSteps: the record of a job tells how long each part of its run took.
func TestSteps(t *testing.T) {
	t.Parallel()
	type part struct {
		text string
		took time.Duration
	}
	var many []part
	for i := range 3 * maxSteps {
		many = append(many, part{fmt.Sprint("part ", i), time.Second})
	}
	cases := map[string]struct {
		parts []part
		want  []state.Step
	}{
		"none":             {nil, nil},
		"one":              {[]part{{"fetch", 1500 * time.Millisecond}}, []state.Step{{Text: "fetch", Seconds: 1.5}}},
		"several":          {[]part{{"fetch", 412*time.Millisecond + 600*time.Microsecond}, {"compare", time.Minute}}, []state.Step{{Text: "fetch", Seconds: 0.413}, {Text: "compare", Seconds: 60}}},
		"said twice":       {[]part{{"fetch", time.Second}, {"fetch", time.Second}}, []state.Step{{Text: "fetch", Seconds: 2}}},
		"again, later":     {[]part{{"a", time.Second}, {"b", time.Second}, {"a", time.Second}}, []state.Step{{Text: "a", Seconds: 1}, {Text: "b", Seconds: 1}, {Text: "a", Seconds: 1}}},
		"too short":        {[]part{{"a", 9999 * time.Microsecond}, {"b", time.Second}, {"c", 0}}, []state.Step{{Text: "b", Seconds: 1}}},
		"nothing but that": {[]part{{"a", 0}, {"b", 4 * time.Millisecond}}, nil},
		"again at once":    {[]part{{"a", time.Second}, {"b", time.Millisecond}, {"a", time.Second}}, []state.Step{{Text: "a", Seconds: 2.001}}},
		"a long name":      {[]part{{strings.Repeat("x", 200), time.Second}}, []state.Step{{Text: strings.Repeat("x", maxStepText-3) + "…", Seconds: 1}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := NewProgress()
				for _, one := range c.parts {
					p.SetMessage(context.Background(), one.text)
					time.Sleep(one.took)
				}
				if got := finishedSteps(p.look().Steps, time.Now()); !reflect.DeepEqual(got, c.want) {
					t.Errorf("%+v, want %+v", got, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := NewProgress()
		for _, one := range many {
			p.Step(one.text)
			time.Sleep(one.took)
		}
		got := finishedSteps(p.look().Steps, time.Now())
		if n := len(got); n != maxSteps || got[n-1].Seconds != 2*maxSteps+1 {
			t.Errorf("%d steps, the last of %+v", n, got[n-1])
		}
		if _, due := p.due(); due || p.look().Message != many[len(many)-1].text {
			t.Errorf("a step is a message that the API need not be told: due %v, %q", due, p.look().Message)
		}
	})
}

// TestStepsOfARun: a run that is taken up again tells of itself alone; what is known of
// the commit and the steps reaches the picture and the record.
func TestStepsOfARun(t *testing.T) {
	commit := state.Commit{Subject: "add peers", Author: "M. Ito", At: time.Unix(1_700_000_000, 0)}
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, t *Task) error {
			t.Progress.SetMessage(ctx, "fetch")
			time.Sleep(2 * time.Second)
			t.Progress.SetCommit(commit)
			t.Progress.StepNote("2 MiB")
			t.Progress.Step("write")
			time.Sleep(3 * time.Second)
			return nil
		})
		a := r.start("a", Options{}, w)
		settle()
		job := r.job("r1", "r1-sync")
		time.Sleep(4 * time.Second)
		settle()
		live := a.Snapshot().Running
		if len(live) != 1 || len(live[0].Steps) != 2 || live[0].Steps[0].Took != 2*time.Second || live[0].Steps[1].Took != 0 || live[0].Commit == nil || *live[0].Commit != commit {
			t.Errorf("live %+v", live)
		}
		time.Sleep(2 * time.Second)
		settle()
		rec := r.done("success", "completed successfully")
		if want := []state.Step{{Text: "fetch, 2 MiB", Seconds: 2}, {Text: "write", Seconds: 3}}; !reflect.DeepEqual(rec.Steps, want) || rec.Commit == nil || !rec.Commit.At.Equal(commit.At) || rec.Commit.Subject != commit.Subject {
			t.Errorf("record %+v", rec)
		}
		if !rec.Created.Equal(job.GetCreationTimestamp().Time) {
			t.Errorf("created %s, the job %s", rec.Created, job.GetCreationTimestamp())
		}
	})
	p := NewProgress()
	p.StepNote("of no step")
	p.Step("of another run")
	if p.resume([]byte(`{"mark":{"done":1},"account":{"done":7}}`)); p.look().Done != 7 || len(p.look().Steps) != 0 {
		t.Errorf("account %+v", p.look())
	}
}
