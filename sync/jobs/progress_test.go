package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git/transfer"
	"limpet/sync/resources"
)

const dash = "dashboard.grafana.app"

func dashboard(action resources.Action, err, warning error) Result {
	return Result{Action: action, Group: dash, Kind: "Dashboard", Name: "n", Path: "a/n.json", Err: err, Warning: warning}
}

func TestRecordCounts(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	text := "bad (file: a/n.json, name: n, action: %s)"
	issue := []api.ResourceIssue{{Message: "bad", Path: "a/n.json"}}
	full := []api.ResourceIssue{{Reason: "QuotaExceeded", Message: (&resources.QuotaError{}).Error(), Path: "a/n.json"}}
	broken := &resources.ParseError{Path: "a/n.json", Err: bad}
	cases := []struct {
		name   string
		result Result
		want   api.JobSummary
		errs   int64
		warns  int64
	}{
		{"created", dashboard(resources.Created, nil, nil), api.JobSummary{Create: 1, Write: 1}, 0, 0},
		{"updated", dashboard(resources.Updated, nil, nil), api.JobSummary{Update: 1, Write: 1}, 0, 0},
		{"deleted", dashboard(resources.Deleted, nil, nil), api.JobSummary{Delete: 1}, 0, 0},
		{"renamed", dashboard(resources.Renamed, nil, nil), api.JobSummary{Delete: 1, Create: 1, Write: 1}, 0, 0},
		{"ignored", dashboard(resources.Ignored, nil, nil), api.JobSummary{Noop: 1}, 0, 0},
		{"unknown action", dashboard("painted", nil, nil), api.JobSummary{Noop: 1}, 0, 0},
		{"error", dashboard(resources.Updated, bad, nil), api.JobSummary{Error: 1, Errors: []string{fmt.Sprintf(text, "updated")},
			ResourceErrors: issue}, 1, 0},
		{"error of an ignored one", dashboard(resources.Ignored, bad, nil),
			api.JobSummary{Error: 1, Errors: []string{fmt.Sprintf(text, "ignored")}, ResourceErrors: issue}, 0, 0},
		{"warning", dashboard(resources.Created, nil, bad), api.JobSummary{Warning: 1, Warnings: []string{fmt.Sprintf(text, "created")},
			ResourceWarnings: issue}, 0, 1},
		{"quota", dashboard(resources.Created, nil, &resources.QuotaError{}), api.JobSummary{Warning: 1, ResourceWarnings: full,
			Warnings: []string{full[0].Message + " (file: a/n.json, name: n, action: created)"}}, 0, 1},
		{"file", dashboard(resources.Created, nil, broken), api.JobSummary{Warning: 1, Warnings: []string{
			"resource validation failed: " + fmt.Sprintf(text, "created")},
			ResourceWarnings: []api.ResourceIssue{{Reason: "ResourceInvalid", Message: "resource validation failed: bad", Path: "a/n.json"}}}, 0, 1},
		{"file without a name", Result{Group: dash, Kind: "Dashboard", Action: resources.Ignored, Warning: broken}, api.JobSummary{Warning: 1, Warnings: []string{
			"resource validation failed: bad (file: a/n.json, action: ignored)"},
			ResourceWarnings: []api.ResourceIssue{{Reason: "ResourceInvalid", Message: "resource validation failed: bad", Path: "a/n.json"}}}, 0, 1},
	}
	for _, c := range cases {
		a := Results{}
		a.record(c.result)
		c.want.Group, c.want.Kind = dash, "Dashboard"
		if got := a.Summary(); len(got) != 1 || !reflect.DeepEqual(got[0], c.want) ||
			a.ErrorCount != c.errs || a.WarningCount != c.warns || a.Done != 1 {
			t.Errorf("%s: summary %+v, want %+v; %d errors, %d warnings, %d done", c.name, got, c.want, a.ErrorCount, a.WarningCount, a.Done)
		}
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	bad := errors.New("bad")
	cases := []struct {
		name           string
		do             func(p *Progress)
		err            error
		state, message string
	}{
		{"success", func(*Progress) {}, nil, "success", "completed successfully"},
		{"final message", func(p *Progress) { p.SetFinalMessage("nothing new") }, nil, "success", "nothing new"},
		{"warning", func(p *Progress) { p.Record(ctx, dashboard(resources.Created, nil, bad)) }, nil, "warning", "completed with warnings"},
		{"warning with final message", func(p *Progress) {
			p.Record(ctx, dashboard(resources.Created, nil, bad))
			p.SetFinalMessage("mostly")
		}, nil, "warning", "mostly"},
		{"recorded error", func(p *Progress) { p.Record(ctx, dashboard(resources.Created, bad, nil)) }, nil, "error", "completed with errors"},
		{"recorded error keeps its message", func(p *Progress) {
			p.Record(ctx, dashboard(resources.Created, bad, nil))
			p.SetFinalMessage("fine")
		}, nil, "error", "completed with errors"},
		{"too many errors", func(p *Progress) {
			p.StrictMaxErrors(1)
			p.Record(ctx, dashboard(resources.Created, bad, nil))
		}, nil, "error", "completed with too many errors"},
		{"returned error", func(*Progress) {}, bad, "error", "bad"},
		{"returned error and warnings stays an error", func(p *Progress) { p.Record(ctx, dashboard(resources.Created, nil, errors.New("w"))) },
			bad, "error", "bad"},
		{"error of an ignored result", func(p *Progress) { p.Record(ctx, dashboard(resources.Ignored, bad, nil)) }, nil, "success",
			"completed successfully"},
	}
	for _, c := range cases {
		p := NewProgress()
		c.do(p)
		if got := p.Outcome(c.err); got.State != c.state || got.Message != c.message {
			t.Errorf("%s: %s %q, want %s %q", c.name, got.State, got.Message, c.state, c.message)
		}
	}
}

// TestStatusStaysSmall: a job may go wrong in ten thousand long ways, its object stays far below
// what an API server takes.
func TestStatusStaysSmall(t *testing.T) {
	t.Parallel()
	p := NewProgress()
	long := errors.New(strings.Repeat("ü", 5000))
	for n := range 10_000 {
		r := Result{Action: resources.Updated, Group: "g", Kind: fmt.Sprint("Kind", n%500), Name: "n", Path: strings.Repeat("p", 300)}
		if n%2 == 0 {
			r.Err = long
		} else {
			r.Warning = long
		}
		p.Record(t.Context(), r)
	}
	p.SetMessage(t.Context(), strings.Repeat("m", 100_000))
	for name, status := range map[string]api.JobStatus{"running": p.begin(t0), "final": p.finalStatus(p.Outcome(long), 1, 2)} {
		data, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 256<<10 {
			t.Errorf("%s status has %d bytes", name, len(data))
		}
		for _, list := range append([][]string{status.Errors, status.Warnings}, status.Summary[0].Errors, status.Summary[0].Warnings) {
			if len(list) > maxErrors || len(list) == maxErrors && !strings.HasPrefix(list[maxErrors-1], "first ") {
				t.Errorf("%s: %d texts, the last %q", name, len(list), list[len(list)-1])
			}
		}
		if len(status.Errors) > maxErrors || len(status.Summary) > maxKinds+1 {
			t.Errorf("%s: %d errors, %d kinds", name, len(status.Errors), len(status.Summary))
		}
		var total int64
		for _, s := range status.Summary {
			total += s.Error + s.Warning
		}
		if total != 10_000 {
			t.Errorf("%s: %d results counted", name, total)
		}
	}
}

// TestIssues: history keeps more errors and warnings than the status, up to a limit, also after a
// restart.
func TestIssues(t *testing.T) {
	t.Parallel()
	p := NewProgress()
	kept := &marks{}
	kept.ofJob(p, nil)
	for n := range 10_000 {
		p.Record(t.Context(), Result{Action: resources.Created, Kind: "Dashboard", Path: fmt.Sprintf("%05d.json", n), Err: errors.New("bad")})
	}
	if err := p.Mark(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	again := NewProgress()
	again.resume(kept.mark)
	for _, p := range []*Progress{p, again} {
		r := p.look()
		if n := len(r.Issues); n != maxIssues || r.IssuesLeft != 10_000-maxIssues || r.Issues[n-1].Path != "00999.json" ||
			r.Issues[0] != (state.Issue{State: "error", Reason: "other", Message: "bad", Path: "00000.json", Kind: "Dashboard", Action: "created"}) {
			t.Errorf("%d issues and %d more: %+v", n, r.IssuesLeft, r.Issues[0])
		}
	}
	p.ResetResults()
	p.Record(t.Context(), Result{Kind: "x", Warning: errors.New(strings.Repeat("w", 5000))})
	if r := p.look(); len(r.Issues) != 1 || r.IssuesLeft != 0 || len(r.Issues[0].Message) > maxText {
		t.Errorf("after a reset: %d, %d", len(r.Issues), r.IssuesLeft)
	}
}

// marks is a state file that keeps one mark.
type marks struct {
	store
	err  error
	mark json.RawMessage
}

func (s *marks) PutMark(_ context.Context, _ string, mark json.RawMessage) error {
	s.mark = mark
	return s.err
}

// ofJob makes p that of a held job, and returns what it says.
func (s *marks) ofJob(p *Progress, ended error) (texts *[]string) {
	texts = new([]string)
	ctx := context.Background()
	if ended != nil {
		lost, cancel := context.WithCancelCause(ctx)
		cancel(ended)
		ctx = lost
	}
	events := newEmitter(simLog, func(e Event) { *texts = append(*texts, e.Text) })
	p.job = &heldJob{ctx: ctx, env: &env{store: s, events: events}}
	return texts
}

func TestMarkAndResume(t *testing.T) {
	t.Parallel()
	p := NewProgress()
	kept := &marks{}
	kept.ofJob(p, nil)
	p.SetTotal(t.Context(), 10)
	p.SetRefs("main", "aaa", "bbb")
	p.Record(t.Context(), dashboard(resources.Created, nil, nil))
	p.Record(t.Context(), dashboard(resources.Updated, errors.New("bad"), nil))
	if err := p.Mark(t.Context(), map[string]int{"batch": 3}); err != nil {
		t.Fatal(err)
	}
	want := p.look()
	p.Record(t.Context(), dashboard(resources.Created, nil, nil)) // after the mark: will be done again

	again := NewProgress()
	if got := string(again.resume(kept.mark)); got != `{"batch":3}` {
		t.Fatalf("mark %s", got)
	}
	if got := again.look(); !reflect.DeepEqual(got, want) {
		t.Fatalf("account %+v, want %+v", got, want)
	}
	again.Record(t.Context(), dashboard(resources.Created, nil, nil))
	if got := again.look().Done; got != 3 {
		t.Fatalf("%d done", got)
	}
}

func FuzzResume(f *testing.F) {
	f.Add([]byte(`{"mark":1,"account":{"kinds":{"a:b":{"create":1}}}}`))
	f.Add([]byte(`{"mark":1,"account":{"kinds":{"a:b":null},"errors":[""]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := NewProgress()
		p.resume(data)
		p.Record(t.Context(), dashboard(resources.Created, errors.New("x"), nil))
		p.finalStatus(p.Outcome(nil), 1, 2)
	})
}

func TestMarkReportsTheLoss(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("%w: reason", ErrLost)
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(ErrShutdown)
	cases := []struct {
		name  string
		ctx   context.Context
		ended error
		put   error
		want  error
		note  bool
	}{
		{name: "lost", ended: lost, want: ErrLost},
		{name: "shutdown", ctx: cancelled, put: context.Canceled, want: ErrShutdown},
		{name: "file full", put: state.ErrFull, note: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := NewProgress()
			texts := (&marks{err: c.put}).ofJob(p, c.ended)
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			if err := p.Mark(ctx, 1); !errors.Is(err, c.want) || (len(*texts) > 0) != c.note {
				t.Errorf("%v, noted %q", err, *texts)
			}
		})
	}
}

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// isProgress says that a write of an agent is about progress: the job was held before and is held
// after it.
func isProgress(e entry) bool {
	return e.Agent != "person" && e.Resource == "jobs" && e.Verb == "update" && !e.Lease &&
		e.before.GetLabels()[api.LabelClaimOwner] != "" && e.now.GetLabels()[api.LabelClaimOwner] != ""
}

// paused is a worker that says or records something every step.
func paused(steps int, step time.Duration, do func(ctx context.Context, p *Progress, i int)) *script {
	return worker(func(ctx context.Context, t *Task) error {
		for i := range steps {
			do(ctx, t.Progress, i)
			select {
			case <-time.After(step):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

func TestProgressIsThrottled(t *testing.T) {
	message := func(ctx context.Context, p *Progress, i int) { p.SetMessage(ctx, fmt.Sprint("step ", i)) }
	record := func(ctx context.Context, p *Progress, i int) { p.Record(ctx, dashboard(resources.Created, nil, nil)) }
	cases := []struct {
		name  string
		w     *script
		after time.Duration
		want  int // progress writes so far
		last  string
	}{
		{"one message in the first half second", paused(1, time.Minute, message), 499 * time.Millisecond, 0, "job started"},
		{"one message after it", paused(1, time.Minute, message), 501 * time.Millisecond, 1, "step 0"},
		{"a hundred messages in ten seconds", paused(1000, 100*time.Millisecond, message), 10*time.Second + 50*time.Millisecond, 20, ""},
		{"the last of a burst arrives", worker(func(ctx context.Context, t *Task) error {
			for i := range 50 {
				message(ctx, t.Progress, i)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}), time.Second, 1, "step 49"},
		{"records every five seconds", paused(10000, 10*time.Millisecond, record), 21 * time.Second, 4, ""},
		{"nothing to say", paused(1, time.Minute, func(context.Context, *Progress, int) {}), 30 * time.Second, 0, "job started"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				r.start("a", Options{}, c.w)
				settle()
				r.job("r1", "r1-sync")
				pass(c.after)
				if got := r.model.writes(isProgress); got != c.want {
					t.Errorf("%d progress writes after %s, want %d", got, c.after, c.want)
				}
				job := r.model.get("jobs", "default", "r1-sync")
				view, err := api.JobView(job)
				if err != nil {
					t.Fatal(err)
				}
				if c.last != "" && view.Status.Message != c.last {
					t.Errorf("message %q, want %q", view.Status.Message, c.last)
				}
				if want := int64(c.want) + 1; view.Status.ProgressUpdates != want || view.Status.State != "working" || view.Status.Started == 0 {
					t.Errorf("status %+v, want %d updates", view.Status, want)
				}
				if c.name == "records every five seconds" && view.Status.Summary[0].Create < 1900 {
					t.Errorf("the write carries %+v", view.Status.Summary)
				}
			})
		})
	}
}

// TestTransfer: what a run receives is told once a second as long as something moves, and never to
// the API or the log of the job.
func TestTransfer(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, paused(10, time.Minute, func(_ context.Context, p *Progress, i int) {
			if i != 1 {
				return
			}
			p.Transfer.Start(transfer.Receiving, 0)
			defer p.Transfer.End()
			for range 100 {
				p.Transfer.Bytes(1500)
				<-time.After(100 * time.Millisecond)
			}
			<-time.After(time.Minute)
		}))
		settle()
		r.job("r1", "r1-sync")
		pass(time.Minute + 5*time.Second)
		live := a.Snapshot().Running
		if len(live) != 1 || live[0].Transfer.Bytes < 70_000 ||
			live[0].Transfer.Rate < 13_000 || live[0].Transfer.Rate > 17_000 || live[0].Transfer.Phase != "receiving" {
			t.Fatalf("in the transfer: %+v", live)
		}
		pass(4 * time.Minute)
		if n := a.count(EventTransfer); n < 10 || n > 26 { // the rate fades
			t.Errorf("%d events of ten seconds: %q", n, a.texts(EventTransfer))
		}
		live = a.Snapshot().Running
		if n := r.model.writes(isProgress); n != 0 || live[0].Transfer != (transfer.State{}) {
			t.Errorf("%d writes; after the transfer: %+v", n, live[0].Transfer)
		}
		for _, l := range live[0].Lines {
			if strings.Contains(l.Text, "receiving") {
				t.Errorf("in the log: %+v", l)
			}
		}
	})
}

func TestLive(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, task *Task) error {
			task.Progress.SetRefs("main", "aaa", "bbb")
			task.Progress.SetTotal(ctx, 4)
			task.Progress.SetMessage(ctx, "halfway")
			task.Progress.Record(ctx, dashboard(resources.Created, nil, nil))
			task.Progress.Record(ctx, dashboard(resources.Created, errors.New("bad"), nil))
			for i := range 500 {
				task.Log.With("part", 1).WithGroup("g").Info("line", "i", i)
			}
			task.Log.Debug("detail")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		a := r.start("a", Options{}, w)
		if len(a.Snapshot().Running) != 0 {
			t.Error("something runs before the start")
		}
		r.job("r1", "r1-sync")
		pass(time.Second)
		live := a.Snapshot().Running
		if len(live) != 1 {
			t.Fatalf("%d jobs live", len(live))
		}
		l := live[0]
		if l.Done != 2 || l.Total != 4 || l.Progress != 50 || l.Branch != "main" || l.RefTo != "bbb" || l.Message != "halfway" ||
			l.ErrorCount != 1 || len(l.Errors) != 1 || len(l.Summary()) != 1 || l.Attempt != 1 || l.MaxAttempts != 3 || l.State != "working" {
			t.Errorf("%+v", l)
		}
		n := len(l.Lines)
		if n < 100 || l.Lines[n-2].Text != "line part=1 g.i=499" {
			t.Errorf("%d lines, the last %q", n, l.Lines[max(0, n-2):])
		}
		if a.waiting() != 1 || a.Ready() != nil {
			t.Errorf("waiting %d, ready %v", a.waiting(), a.Ready())
		}
		a.stop()
		if len(a.Snapshot().Running) != 0 {
			t.Error("something is live after the stop")
		}
	})
}

// TestSteps: the record of a job tells how long each part of its run took.
func TestSteps(t *testing.T) {
	t.Parallel()
	type part struct {
		text string
		took time.Duration
	}
	run := func(t *testing.T, parts []part, say func(p *Progress, text string)) (p *Progress, got []state.Step) {
		synctest.Test(t, func(*testing.T) {
			p = NewProgress()
			for _, one := range parts {
				say(p, one.text)
				<-time.After(one.took)
			}
			got = finishedSteps(p.look().Steps, time.Now())
		})
		return p, got
	}
	var many []part
	for i := range 3 * maxSteps {
		many = append(many, part{fmt.Sprint("part ", i), time.Second})
	}
	for name, c := range map[string]struct {
		parts []part
		want  []state.Step
	}{
		"none": {nil, nil},
		"several": {[]part{{"fetch", 412*time.Millisecond + 600*time.Microsecond}, {"compare", time.Minute}},
			[]state.Step{{Text: "fetch", Seconds: 0.413}, {Text: "compare", Seconds: 60}}},
		"again, later": {[]part{{"a", time.Second}, {"b", time.Second}, {"a", time.Second}},
			[]state.Step{{Text: "a", Seconds: 1}, {Text: "b", Seconds: 1}, {Text: "a", Seconds: 1}}},
		"too short": {[]part{{"a", 9999 * time.Microsecond}, {"b", time.Second}, {"c", 0}}, []state.Step{{Text: "b", Seconds: 1}}},
		"a long name": {[]part{{strings.Repeat("x", 200), time.Second}},
			[]state.Step{{Text: strings.Repeat("x", maxStepText-3) + "…", Seconds: 1}}},
	} {
		_, got := run(t, c.parts, func(p *Progress, text string) { p.SetMessage(context.Background(), text) })
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	p, got := run(t, many, (*Progress).Step)
	if n := len(got); n != maxSteps || got[n-1].Seconds != 2*maxSteps+1 {
		t.Errorf("%d steps, the last of %+v", n, got[n-1])
	}
	if _, due := p.due(); due || p.look().Message != many[len(many)-1].text {
		t.Errorf("a step is a message that the API need not be told: due %v, %q", due, p.look().Message)
	}
}
