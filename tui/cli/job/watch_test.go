package job

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/tui/cli/command"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
)

func TestWaitEndsLikeTheJob(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, state, status string
		code                int
	}{
		{"success", "success", `{"state":"success","message":"all good"}`, command.ExitOK},
		{"warning", "warning", `{"state":"warning"}`, command.ExitPartial},
		{"some resources", "error", `{"state":"error","summary":[{"kind":"Dashboard","error":1,"write":3}]}`, command.ExitPartial},
		{"all failed", "error", `{"state":"error","errors":["401"],"summary":[{"kind":"Dashboard","error":1}]}`, command.ExitJobFailed},
		{"no attempt left", "dead", `{"state":"error","summary":[{"kind":"Dashboard","error":1,"write":3}]}`, command.ExitJobFailed},
		{"cancelled", "cancelled", `{"state":"error"}`, command.ExitCancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.claim("begun")
			ended := b.follow(t.Context())
			b.says("working 40% begun")
			b.end(&state.Record{State: tt.state, Status: []byte(tt.status)})
			b.ends(ended, tt.code, "the job")
			if !strings.Contains(b.out.String(), "job/r-sync "+tt.state+" in ") {
				t.Errorf("stdout: %s", b.out)
			}
		})
	}
}

// TestEndThatIsTakenBack: a job that another server begins anew is not over.
func TestEndThatIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := newFollower(b.r, b.s, b.job, "none")
	for _, tt := range []struct {
		status map[string]any
		over   bool
	}{
		{map[string]any{"state": "error", "finished": int64(1)}, true}, {map[string]any{"state": "working"}, false},
		{map[string]any{"state": "success"}, false}, {map[string]any{"state": "pending", "finished": int64(1)}, false}, {map[string]any{"state": "warning", "finished": int64(1)}, true},
	} {
		u := b.job.DeepCopy()
		u.Object["status"] = tt.status
		if f.see(u); f.final.IsZero() == tt.over {
			t.Errorf("%v: over since %v", tt.status, f.final)
		}
	}
}

// TestWaitWithoutHistory: a server that keeps the history elsewhere has no record; then
// the result is that of the last status.
func TestWaitWithoutHistory(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]int{http.StatusNotFound: command.ExitOK, http.StatusForbidden: command.ExitOK, http.StatusMethodNotAllowed: command.ExitOK, http.StatusUnauthorized: command.ExitAuth} {
		b := newBench(t)
		b.s.Store = nil
		b.wire.noHistory.Store(int64(code))
		b.status(map[string]any{"state": "success", "message": "all good", "started": time.Now().UnixMilli(), "finished": time.Now().UnixMilli()})
		ended := b.follow(t.Context())
		b.says("all good")
		b.end(nil)
		err := <-ended
		if got, _ := command.Classify(err); err != nil && got != want || err == nil && (want != command.ExitOK || !strings.HasPrefix(b.out.String(), "job/r-sync success in ")) {
			t.Errorf("%d: %v, want exit %d: %s", code, err, want, b.out)
		}
	}
}

// TestEndOfAJob: each figure in its place, and nothing that steers a terminal.
func TestEndOfAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	status, err := json.Marshal(api.JobStatus{Started: 1000, Finished: 60_999, Message: "m\x1b[2J", Errors: []string{"e\x1b[2J"}, Warnings: []string{"w\r\n"},
		Summary: []api.JobSummary{{Kind: "Dashboard", Create: 1, Update: 2, Delete: 3, Warning: 4, Error: 5, Noop: 6, Write: 7, Total: 8}, {Error: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := command.Classify(printEnd(b.r, state.Record{Name: "r-sync", State: "warning", Status: status}, false)); code != command.ExitPartial {
		t.Errorf("exit %d", code)
	}
	want := "job/r-sync warning in 59s: m[2J\n  Dashboard: 1 created, 2 updated, 3 deleted, 6 unchanged, 4 warnings, 5 errors\n" +
		"  no kind: 0 created, 0 updated, 0 deleted, 0 unchanged, 0 warnings, 1 error\n  error: e[2J\n  warning: w  \n"
	if got := b.out.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestWaitForAJobThatIsDeleted(t *testing.T) {
	t.Parallel()
	t.Run("before it was claimed", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		ended := b.follow(t.Context())
		b.says("pending")
		b.end(nil)
		b.ends(ended, command.ExitCancelled, "deleted before it was claimed")
	})
	t.Run("another job has taken its name", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		ended := b.follow(t.Context())
		b.says("pending")
		b.wire.down.Store(true)
		b.says("no answer")
		b.wire.down.Store(false)
		b.end(nil)
		b.replace()
		b.ends(ended, command.ExitCancelled, "deleted before it was claimed")
	})
}

func TestWaitThatIsCutShort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cause error
		code  int
	}{{context.Canceled, command.ExitCancelled}, {command.TimeoutError{After: time.Second}, command.ExitTimeout}} {
		b := newBench(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := b.follow(ctx)
		b.says("pending")
		cancel(tt.cause)
		b.ends(ended, tt.code, "the job goes on")
		if _, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err != nil {
			t.Errorf("the job is gone: %v", err)
		}
	}
}

// TestFollowSaysWhyOnce: the reason why a daemon leaves the job alone is printed once, and
// again when it is another one; that of a claimed job is not.
func TestFollowSaysWhyOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := newFollower(b.r, b.s, b.job, "plain")
	const first, second = "its actions are not taken here", "no credentials"
	for _, reason := range []string{first, first, "", second} {
		f.showRow(&snapshot.Job{Name: "r-sync", WaitReason: reason}, true)
	}
	f.showRow(&snapshot.Job{Name: "r-sync", WaitReason: "late"}, false)
	var said []string
	for line := range strings.Lines(b.errs.String()) {
		_, text, _ := strings.Cut(line, " ")
		said = append(said, strings.TrimSpace(text))
	}
	if want := []string{"r-sync is not claimed by this agent: " + first, "r-sync is not claimed by this agent: " + second}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

func TestCancelJob(t *testing.T) {
	t.Parallel()
	t.Run("that waits", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		if done, err := control.Cancel(t.Context(), b.s.Client, b.job, true); err != nil || done != "deleted before it was claimed" {
			t.Fatalf("%q %v", done, err)
		}
		if _, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err == nil {
			t.Error("the job is still there")
		}
	})
	t.Run("that was claimed meanwhile", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.claim("begun") // b.job is from before that
		if done, err := control.Cancel(t.Context(), b.s.Client, b.job, true); err != nil || done != "asked to stop" {
			t.Fatalf("%q %v", done, err)
		}
		u, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{})
		if err != nil || u.GetAnnotations()[api.AnnoCancel] == "" || u.GetLabels()[api.LabelClaim] == "" {
			t.Errorf("%v %v", u, err)
		}
	})
	t.Run("that rests", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		rests := b.job.DeepCopy()
		rests.SetAnnotations(map[string]string{api.AnnoAttempts: `[{"n":1}]`, api.AnnoNotBefore: "9999999999999"})
		u, err := b.jobs().Update(t.Context(), rests, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if done, err := control.Cancel(t.Context(), b.s.Client, u, true); err != nil || done != "asked to stop" {
			t.Fatalf("%q %v", done, err)
		}
		if u, err = b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err != nil || u.GetAnnotations()[api.AnnoCancel] == "" {
			t.Fatalf("%v %v", u, err)
		}
		if done, err := control.Cancel(t.Context(), b.s.Client, u, true); err != nil || done != "deleted before it was claimed" { // no agent has come
			t.Fatalf("asked again: %q %v", done, err)
		}
	})
	t.Run("whose name belongs to another", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.end(nil)
		b.replace()
		if _, err := control.Cancel(t.Context(), b.s.Client, b.job, true); err == nil {
			t.Error("the other job was cancelled")
		}
		if u, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err != nil || u.GetUID() == b.job.GetUID() || u.GetAnnotations()[api.AnnoCancel] != "" {
			t.Errorf("%v %v", u, err)
		}
	})
}

// TestSaysOnceThatNobodyAnswers: and again when the API is away anew.
func TestSaysOnceThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.claim("begun")
		ended := b.follow(t.Context())
		b.says("begun")
		for n := range 2 {
			b.wire.down.Store(true)
			time.Sleep(10 * time.Second)
			b.wire.down.Store(false)
			b.claim(fmt.Sprint("further ", n))
			b.says(fmt.Sprint("further ", n))
			if said := strings.Count(b.errs.String(), "no answer"); said != n+1 {
				t.Errorf("after %d times away it was said %d times:\n%s", n+1, said, b.errs)
			}
		}
		b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
		b.ends(ended, command.ExitOK, "")
	})
}

// TestBarMakesRoom: what is said stands in its place and not behind it, and so does what comes when
// the wait is over.
func TestBarMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.how.Progress = "bar"
		b.claim("begun")
		ended := b.follow(t.Context())
		b.says("begun")
		b.wire.down.Store(true)
		b.says("no answer")
		b.wire.down.Store(false)
		b.claim("further")
		b.says("further")
		b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
		b.ends(ended, command.ExitOK, "")
		before, after, _ := strings.Cut(b.errs.String(), "\n")
		before = before[:strings.LastIndex(before, "Z r-sync: no answer")-len("2000-01-01T00:00:00")]
		for _, text := range []string{before, after} {
			if !strings.Contains(text, "pull r  ####") || !strings.HasSuffix(text, "\r\x1b[K") {
				t.Errorf("the bar is still there: %q", text)
			}
		}
	})
}

// TestWhatIsWorthALine: another state or message, a tenth of the way, one more error, and
// what is asked for. Of documents there is one for each change alone.
func TestWhatIsWorthALine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.r.Flags.Output = "json"
	f := newFollower(b.r, b.s, b.job, "plain")
	f.stream = true
	lines := func() (said, documents int) {
		return strings.Count(b.errs.String(), "\n"), strings.Count(b.out.String(), "\n")
	}
	for _, tt := range []struct {
		what   string
		status map[string]any
		worth  int
	}{
		{"the first", map[string]any{"state": "working", "message": "m", "progress": 40.0}, 1},
		{"a percent", map[string]any{"state": "working", "message": "m", "progress": 41.0}, 0},
		{"nine", map[string]any{"state": "working", "message": "m", "progress": 49.9}, 0},
		{"a tenth", map[string]any{"state": "working", "message": "m", "progress": 50.0}, 1},
		{"an error", map[string]any{"state": "working", "message": "m", "progress": 50.0, "errors": []any{"a"}}, 1},
		{"another error", map[string]any{"state": "working", "message": "m", "progress": 51.0, "errors": []any{"a", "b"}}, 1},
		{"a message", map[string]any{"state": "working", "message": "n", "progress": 51.0, "errors": []any{"a", "b"}}, 1},
		{"a state", map[string]any{"state": "pending", "message": "n", "progress": 51.0, "errors": []any{"a", "b"}}, 1},
	} {
		said, documents := lines()
		u := b.job.DeepCopy()
		u.Object["status"] = tt.status
		f.seen = u
		f.see(u)
		if more, docs := lines(); more-said != tt.worth || docs-documents != tt.worth {
			t.Errorf("%s: %d lines and %d documents, want %d", tt.what, more-said, docs-documents, tt.worth)
		}
	}
	said, documents := lines()
	f.printed = time.Time{}
	f.see(f.seen)
	if more, docs := lines(); more != said+1 || docs != documents {
		t.Errorf("asked for: %d lines and %d documents more, want 1 and none", more-said, docs-documents)
	}
	if !strings.HasSuffix(b.errs.String(), " r-sync pending n errors=2\n") {
		t.Errorf("the last: %s", b.errs)
	}
}

// TestWatchOfAJobThatHasEnded: a quick job ends before its name is typed. The end is
// printed as who had waited sees it, with the same exit code; the newest of a name counts.
func TestWatchOfAJobThatHasEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, errs := s.Must(t, command.ExitError, "job", "watch", "r-sync")
	if !strings.Contains(errs, "job \"r-sync\" not found") || !strings.Contains(errs, "try: limpet job list; limpet history list") {
		t.Errorf("%s", errs)
	}
	at := time.Now().Add(-3 * time.Minute)
	rec := func(uid, namespace, name, end, status string, at time.Time) state.Record {
		return state.Record{UID: uid, Namespace: namespace, Name: name, Repository: "r", Action: "pull", State: end, Status: []byte(status), Finished: at}
	}
	s.Record(t,
		rec("u0", "default", "r-sync", "error", `{"state":"error"}`, at.Add(-time.Hour)),
		rec("u1", "default", "r-sync", "success", `{"state":"success","message":"all good","started":1000,"finished":3000}`, at),
		rec("u4", "one", "e-sync", "dead", `{"state":"error"}`, at),
		rec("u5", "two", "e-sync", "warning", `{"state":"warning"}`, at))
	for _, tt := range []struct {
		args string
		code int
		out  string
	}{
		{"r-sync", command.ExitOK, "job/r-sync success in 2.0s: all good\n"}, {"u0", command.ExitJobFailed, "job/r-sync error in "},
		{"e-sync -n one", command.ExitJobFailed, "job/e-sync dead in "}, {"e-sync", command.ExitUsage, ""},
		{"e-sync -n two -q -o json", command.ExitPartial, `{"type":"ended","schemaVersion":1,`},
	} {
		out, errs := s.Must(t, tt.code, append([]string{"job", "watch"}, strings.Fields(tt.args)...)...)
		if !strings.HasPrefix(out, tt.out) || strings.Contains(errs, "already finished, 3m ago") != (tt.args == "r-sync" || tt.args == "e-sync -n one") {
			t.Errorf("%s: %s%s", tt.args, out, errs)
		}
	}
}

// TestWaitForAJobThatNoAgentServes ends when the agent says so, else after the time that others
// have to claim it.
func TestWaitForAJobThatNoAgentServes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		action, reason string
		age            time.Duration
		over           bool
	}{
		{"pull", "no credentials", time.Hour, false}, {"fetch", "", time.Second, false}, {"fetch", "no agent serves fetch", time.Second, true},
		{"fetch", "", time.Hour, true},
	} {
		b := newBench(t)
		f := newFollower(b.r, b.s, b.job, "none")
		u := b.job.DeepCopy()
		u.Object["spec"].(map[string]any)["action"], f.waitReason = tt.action, tt.reason
		u.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-tt.age)))
		if err := f.unserved(u); (err != nil) != tt.over {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
