package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs/queue"
)

const dash = "dashboard.grafana.app"

func dashboard(action string, err, warning error) Result {
	return Result{Action: action, Group: dash, Kind: "Dashboard", Name: "n", Path: "a/n.json", Err: err, Warning: warning}
}

func TestRecordCounts(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	text := "bad (file: a/n.json, name: n, action: %s)"
	cases := []struct {
		name   string
		result Result
		want   api.JobSummary
		errs   int64
		warns  int64
	}{
		{"created", dashboard(Created, nil, nil), api.JobSummary{Create: 1, Write: 1}, 0, 0},
		{"updated", dashboard(Updated, nil, nil), api.JobSummary{Update: 1, Write: 1}, 0, 0},
		{"replaced", dashboard(Replaced, nil, nil), api.JobSummary{Update: 1, Write: 1}, 0, 0},
		{"deleted", dashboard(Deleted, nil, nil), api.JobSummary{Delete: 1}, 0, 0},
		{"renamed", dashboard(Renamed, nil, nil), api.JobSummary{Delete: 1, Create: 1, Write: 1}, 0, 0},
		{"ignored", dashboard(Ignored, nil, nil), api.JobSummary{Noop: 1}, 0, 0},
		{"unknown action", dashboard("painted", nil, nil), api.JobSummary{Noop: 1}, 0, 0},
		{"error", dashboard(Updated, bad, nil), api.JobSummary{Error: 1, Errors: []string{fmt.Sprintf(text, "updated")}}, 1, 0},
		{"error of an ignored one", dashboard(Ignored, bad, nil), api.JobSummary{Error: 1, Errors: []string{fmt.Sprintf(text, "ignored")}}, 0, 0},
		{"warning", dashboard(Created, nil, bad), api.JobSummary{Warning: 1, Warnings: []string{fmt.Sprintf(text, "created")}}, 0, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newResults()
			a.record(c.result)
			c.want.Group, c.want.Kind = dash, "Dashboard"
			if got := a.summary(); len(got) != 1 || !reflect.DeepEqual(got[0], c.want) {
				t.Errorf("summary %+v, want %+v", got, c.want)
			}
			if a.ErrorCount != c.errs || a.WarningCount != c.warns || a.Done != 1 {
				t.Errorf("%d errors, %d warnings, %d done", a.ErrorCount, a.WarningCount, a.Done)
			}
		})
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
		{"warning", func(p *Progress) { p.Record(ctx, dashboard(Created, nil, bad)) }, nil, "warning", "completed with warnings"},
		{"warning with final message", func(p *Progress) {
			p.Record(ctx, dashboard(Created, nil, bad))
			p.SetFinalMessage("mostly")
		}, nil, "warning", "mostly"},
		{"recorded error", func(p *Progress) { p.Record(ctx, dashboard(Created, bad, nil)) }, nil, "error", "completed with errors"},
		{"recorded error keeps its message", func(p *Progress) {
			p.Record(ctx, dashboard(Created, bad, nil))
			p.SetFinalMessage("fine")
		}, nil, "error", "completed with errors"},
		{"too many errors", func(p *Progress) {
			p.StrictMaxErrors(1)
			p.Record(ctx, dashboard(Created, bad, nil))
		}, nil, "error", "completed with too many errors"},
		{"returned error", func(*Progress) {}, bad, "error", "bad"},
		{"returned error and warnings stays an error", func(p *Progress) { p.Record(ctx, dashboard(Created, nil, errors.New("w"))) }, bad, "error", "bad"},
		{"error of an ignored result", func(p *Progress) { p.Record(ctx, dashboard(Ignored, bad, nil)) }, nil, "success", "completed successfully"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := NewProgress()
			c.do(p)
			if got := p.Outcome(c.err); got.State != c.state || got.Message != c.message {
				t.Errorf("%s %q, want %s %q", got.State, got.Message, c.state, c.message)
			}
		})
	}
}

func TestTooManyErrors(t *testing.T) {
	t.Parallel()
	p := NewProgress()
	for range 50 {
		p.Record(t.Context(), dashboard(Updated, errors.New("x"), nil))
	}
	if err := p.TooManyErrors(); err != nil {
		t.Fatalf("no limit, but %v", err)
	}
	p.StrictMaxErrors(20)
	var many *TooManyErrorsError
	if err := p.TooManyErrors(); !errors.As(err, &many) || err.Error() != "too many errors: 50" {
		t.Fatalf("%v", err)
	}
	p.ResetResults()
	if err := p.TooManyErrors(); err != nil || p.look().Done != 0 {
		t.Fatalf("after a reset: %v", err)
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	p := NewProgress()
	p.Record(t.Context(), dashboard(Created, nil, nil))
	if got := p.begin(t0).Progress; got != 0 {
		t.Errorf("unknown total: %v", got)
	}
	p.SetTotal(t.Context(), 4)
	if got := p.begin(t0).Progress; got != 25 {
		t.Errorf("1 of 4: %v", got)
	}
	for range 9 {
		p.Record(t.Context(), dashboard(Created, nil, nil))
	}
	if got := p.begin(t0).Progress; got != 100 {
		t.Errorf("10 of 4: %v", got)
	}
	final := p.finalStatus(p.Outcome(nil), 1, 2)
	if final.Progress != 0 || final.Started != 1 || final.Finished != 2 {
		t.Errorf("final status %+v", final)
	}
}

// TestStatusStaysSmall: a job may go wrong in ten thousand long ways, its
// object stays far below what an API server takes.
func TestStatusStaysSmall(t *testing.T) {
	t.Parallel()
	p := NewProgress()
	long := errors.New(strings.Repeat("ü", 5000))
	for n := range 10_000 {
		r := Result{Action: Updated, Group: "g", Kind: fmt.Sprint("Kind", n%500), Name: "n", Path: strings.Repeat("p", 300)}
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
		if len(data) > 512<<10 {
			t.Errorf("%s status has %d bytes", name, len(data))
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

func TestClip(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("ü", 100), strings.Repeat("x", 100), "\xff\xfe" + strings.Repeat("日", 50)} {
		got := clip(text, 50)
		if len(got) > 50 || !utf8.ValidString(got) {
			t.Errorf("clip(%q) = %q", text, got)
		}
	}
}

func FuzzClip(f *testing.F) {
	f.Add("héllo \xff", 7)
	f.Add("日本語", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 3 + (limit&0x7fffffff)%100
		if got := clip(text, limit); len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("clip(%q, %d) = %q", text, limit, got)
		}
	})
}

// sink is a job of a Progress.
type sink struct {
	noJob
	lost, err error
	mark      json.RawMessage
	texts     []string
}

func (s *sink) leaseLost() error    { return s.lost }
func (s *sink) emit(_, text string) { s.texts = append(s.texts, text) }

func (s *sink) putMark(_ context.Context, mark json.RawMessage) error {
	s.mark = mark
	return s.err
}

func TestMarkAndResume(t *testing.T) {
	t.Parallel()
	p := NewProgress()
	kept := &sink{}
	p.job = kept
	p.SetTotal(t.Context(), 10)
	p.SetRefs("main", "aaa", "bbb")
	p.Record(t.Context(), dashboard(Created, nil, nil))
	p.Record(t.Context(), dashboard(Updated, errors.New("bad"), nil))
	if err := p.Mark(t.Context(), map[string]int{"batch": 3}); err != nil {
		t.Fatal(err)
	}
	want := p.look()
	p.Record(t.Context(), dashboard(Created, nil, nil)) // after the mark: will be done again

	again := NewProgress()
	if got := string(again.resume(kept.mark)); got != `{"batch":3}` {
		t.Fatalf("mark %s", got)
	}
	if got := again.look(); !reflect.DeepEqual(got, want) {
		t.Fatalf("account %+v, want %+v", got, want)
	}
	again.Record(t.Context(), dashboard(Created, nil, nil))
	if got := again.look().Done; got != 3 {
		t.Fatalf("%d done", got)
	}
}

func TestResumeFromUnreadableMarks(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "null", "17", "{", `{"mark":null}`, `{"account":{"done":4}}`, `{"mark":{"a":1},"account":{"kinds":{"x":null}}}`} {
		p := NewProgress()
		mark := p.resume(json.RawMessage(data))
		p.Record(t.Context(), dashboard(Created, nil, nil))
		if len(mark) == 0 && p.look().Done != 1 {
			t.Errorf("%q: results without a mark were taken over", data)
		}
	}
}

func FuzzResume(f *testing.F) {
	f.Add([]byte(`{"mark":1,"account":{"kinds":{"a:b":{"create":1}}}}`))
	f.Add([]byte(`{"mark":1,"account":{"kinds":{"a:b":null},"errors":[""]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := NewProgress()
		p.resume(data)
		p.Record(t.Context(), dashboard(Created, errors.New("x"), nil))
		p.finalStatus(p.Outcome(nil), 1, 2)
	})
}

func TestMarkTellsWhenTheJobIsNotOurs(t *testing.T) {
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
		{name: "claim gone", put: state.ErrNotFound, want: ErrLost},
		{name: "shutdown", ctx: cancelled, put: context.Canceled, want: ErrShutdown},
		{name: "file full", put: state.ErrFull, note: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, job := NewProgress(), &sink{lost: c.ended, err: c.put}
			p.job = job
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			if err := p.Mark(ctx, 1); !errors.Is(err, c.want) || (len(job.texts) > 0) != c.note {
				t.Errorf("%v, noted %q", err, job.texts)
			}
		})
	}
}

func TestMessagesTellOncePerChange(t *testing.T) {
	t.Parallel()
	p, job := NewProgress(), &sink{}
	p.job = job
	for _, m := range []string{"a", "a", "b", "b", "a"} {
		p.SetMessage(t.Context(), m)
	}
	if fmt.Sprint(job.texts) != "[a b a]" {
		t.Fatalf("%v", job.texts)
	}
	if due, some := p.due(); !some || due.Sub(p.throttle.last) != 500*time.Millisecond {
		t.Fatalf("due %s %t", due, some)
	}
}

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func TestThrottle(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		th   throttle
		due  time.Duration
		none bool
	}{
		{"nothing changed", throttle{last: t0}, 0, true},
		{"message", throttle{last: t0, message: true}, 500 * time.Millisecond, false},
		{"record", throttle{last: t0, record: true}, 5 * time.Second, false},
		{"both", throttle{last: t0, message: true, record: true}, 500 * time.Millisecond, false},
	}
	for _, c := range cases {
		due, some := c.th.due()
		if some == c.none || some && due.Sub(t0) != c.due {
			t.Errorf("%s: due %s, %t", c.name, due.Sub(t0), some)
		}
	}
	th := throttle{last: t0, message: true, record: true}
	th.begin(t0.Add(time.Second))
	if _, some := th.due(); some {
		t.Error("due after a write that carried everything")
	}
	th.again()
	if due, some := th.due(); !some || due.Sub(t0) != 6*time.Second {
		t.Errorf("a write that did not arrive is due %s, %t", due.Sub(t0), some)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	wants := map[int]time.Duration{0: 0, 1: 0, 2: 5 * time.Second, 3: 20 * time.Second, 4: 80 * time.Second, 5: 5 * time.Minute, 1000: 5 * time.Minute}
	for attempt, want := range wants {
		if got := attemptDelay(attempt); got != want {
			t.Errorf("attempt %d rests %s, want %s", attempt, got, want)
		}
	}
	last := time.Duration(0)
	for try := 1; try < 100; try++ {
		d := queue.RetryDelay(try)
		if d < last || d > 30*time.Second || d < 250*time.Millisecond {
			t.Errorf("try %d rests %s after %s", try, d, last)
		}
		last = d
	}
	for range 1000 {
		if d := (machine{}).jitter(10 * time.Second); d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("jitter made 10 s to %s", d)
		}
	}
}
