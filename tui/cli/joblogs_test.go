package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/snapshot"
)

// album is an agent that shows the pictures which a test gives it.
type album struct {
	control.Agent
	next chan *snapshot.Snapshot
}

func (a *album) Next(ctx context.Context, _ uint64) (*snapshot.Snapshot, error) {
	select {
	case s := <-a.next:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// album has the socket of a daemon beside a bench, whose pictures show is given: how the
// job looks in each, nil where it is in none.
func (b *bench) album() (show func(job *snapshot.Job)) {
	b.t.Helper()
	b.r.g.State = filepath.Join(b.t.TempDir(), "limpet.db")
	path := agent.SocketPath(b.r.g.State)
	ln, err := control.Listen(path)
	if err != nil {
		b.t.Fatal(err)
	}
	a := &album{next: make(chan *snapshot.Snapshot)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := &control.Server{Hello: control.Hello{Version: Version, Protocol: control.Protocol}, Desk: b.store, Agent: a, API: http.NotFoundHandler()}
	go func() { done <- server.Serve(ctx, ln) }()
	b.leave = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(func() { b.s.Daemon.Close(); b.leave() })
	if b.s.Daemon, err = control.Attach(b.t.Context(), path); err != nil {
		b.t.Fatal(err)
	}
	seq := uint64(0)
	return func(job *snapshot.Job) {
		seq++
		snap := &snapshot.Snapshot{Seq: seq, At: time.Now(), API: snapshot.API{Up: true}, Counts: b.counts, Jobs: []snapshot.Job{{UID: "other", Name: "other", Log: []snapshot.Event{{Text: "not this"}}}}}
		if job != nil {
			job.UID = string(b.job.GetUID())
			snap.Jobs = append(snap.Jobs, *job)
		}
		select {
		case a.next <- snap:
		case <-time.After(30 * time.Second):
			b.t.Error("nobody wants the next picture")
		}
	}
}

// logOf are lines of a log.
func logOf(texts ...string) (out []snapshot.Event) {
	for i, text := range texts {
		out = append(out, snapshot.Event{At: time.Date(2026, 11, 20, 14, 0, i, 0, time.UTC), Level: "info", Text: text})
	}
	return out
}

// TestLogsFollowToTheEnd: a job that is not in a picture yet, or not among its many, is
// waited for, and what the picture of its end has is printed.
func TestLogsFollowToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	show, out := b.album(), &lockedBuffer{}
	b.r.Out = out
	ended := make(chan error, 1)
	go func() {
		ended <- (&jobLog{uid: string(b.job.GetUID())}).print(t.Context(), b.r, b.s, b.job)
	}()
	asked := func() {
		t.Helper()
		before := b.wire.calls.Load()
		show(nil)
		b.until("asked whether the job is gone", func() bool { return b.wire.calls.Load() > before })
	}
	asked()
	asked()
	show(&snapshot.Job{Log: logOf("first")})
	b.until("the first line", func() bool { return strings.HasSuffix(out.String(), " info  first\n") })
	asked()
	b.claim("begun")
	b.end(nil)
	asked()
	show(&snapshot.Job{Log: logOf("first", "last"), Finished: time.Now()})
	if err := <-ended; err != nil || !strings.HasSuffix(out.String(), " info  first\n2026-11-20T14:00:01Z info  last\n") || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestLogsOfAJobThatIsDeleted: whoever runs it, the end is not waited for longer than one
// picture.
func TestLogsOfAJobThatIsDeleted(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		b := newBench(t)
		show := b.album()
		b.end(nil)
		if again { // another one has its name
			other := b.job.DeepCopy()
			other.SetUID("")
			other.SetResourceVersion("")
			if _, err := b.jobs().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() {
			ended <- (&jobLog{uid: string(b.job.GetUID())}).print(t.Context(), b.r, b.s, b.job)
		}()
		before := b.wire.calls.Load()
		show(nil)
		b.until("asked whether the job is gone", func() bool { return b.wire.calls.Load() > before })
		show(nil)
		if err := <-ended; err != nil || b.out.Len() > 0 {
			t.Errorf("%v %s", err, b.out)
		}
	}
}

// TestLogsOfARecord: the last line has the level of the end. Who follows gets the exit
// code of the end, who only reads does not.
func TestLogsOfARecord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state, level string
		code         int
	}{{"success", "info", ExitOK}, {"warning", "warn", ExitPartial}, {"error", "error", ExitJobFailed}, {"cancelled", "warn", ExitCancelled}, {"dead", "error", ExitJobFailed}} {
		s := newSite(t)
		s.record(t, state.Record{UID: "u1", Namespace: "default", Name: "r-sync", Repository: "r", Action: "pull", State: tt.state, Message: "it ended",
			Finished: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), Status: []byte(`{"state":"error"}`)})
		want := fmt.Sprintf("2026-11-20T14:00:00Z %-5s it ended\n", tt.level)
		if out, _ := s.must(t, ExitOK, "job", "logs", "r-sync"); out != want {
			t.Errorf("%s: %s", tt.state, out)
		}
		out, errs := s.must(t, tt.code, "job", "logs", "r-sync", "--follow")
		if out != want || tt.code != ExitOK && !strings.Contains(errs, "try: limpet history show u1") {
			t.Errorf("%s: %s%s", tt.state, out, errs)
		}
	}
}

// TestLogsFollowEndsLikeTheJob: with the exit code of who watches it.
func TestLogsFollowEndsLikeTheJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	show, out := b.album(), &lockedBuffer{}
	b.r.Out = out
	b.claim("begun")
	ended := make(chan error, 1)
	go func() {
		ended <- (&jobLog{uid: string(b.job.GetUID())}).follow(t.Context(), b.r, b.s, b.job)
	}()
	b.end(&state.Record{State: "warning", Status: []byte(`{"state":"warning"}`)})
	show(&snapshot.Job{Log: logOf("last"), Finished: time.Now()})
	b.ends(ended, ExitPartial, "the job ended with warnings")
	if !strings.HasSuffix(out.String(), " info  last\n") {
		t.Errorf("%s", out)
	}
}

// TestFollowPrintsTheLastLines: those that the picture of the end has, which comes after
// the API has told that the job is gone.
func TestFollowPrintsTheLastLines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	show, out := b.album(), &lockedBuffer{}
	b.r.Out, b.how.Follow = out, true
	b.claim("begun")
	ended := b.follow(t.Context())
	b.says("begun")
	show(&snapshot.Job{Log: logOf("first")})
	b.until("the first line", func() bool { return strings.Contains(out.String(), " first\n") })
	b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
	show(&snapshot.Job{Log: logOf("first", "last"), Finished: time.Now()})
	b.ends(ended, ExitOK, "")
	if got := out.String(); !strings.Contains(got, " first\n2026-11-20T14:00:01Z info  last\njob/r-sync success in ") {
		t.Errorf("%s", got)
	}
}

// TestWatchOfTheStatus: a line for each change and none for what is the same, with a head
// where one is wanted, also when the daemon goes; Ctrl-C ends it then too.
func TestWatchOfTheStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		form   string
		noHead bool
		says   []string // in each line, the head among them
	}{
		{"table", false, []string{"TIME ", "  ok ", "  ok ", "  away "}},
		{"table", true, []string{"  ok ", "  ok ", "  away "}},
		{"json", false, []string{`"repos":[]`, `"ok":true`, `"live":null,"store":null,"ok":false,"why":["`}},
	} {
		b := newBench(t)
		show, out := b.album(), &lockedBuffer{}
		b.r.Out, b.r.g.Output, b.r.g.NoHeaders = out, tt.form, tt.noHead
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.r.watchStatus(ctx) }()
		lines := func() int { return strings.Count(out.String(), "\n") }
		show(nil)
		b.until("the first line", func() bool { return lines() == len(tt.says)-2 })
		show(nil)
		show(&snapshot.Job{})
		b.counts = snapshot.Counts{Working: 1}
		show(&snapshot.Job{})
		b.until("the change", func() bool { return lines() == len(tt.says)-1 })
		b.leave()
		b.until("the daemon is away", func() bool { return lines() >= len(tt.says) })
		cancel(signalled{syscall.SIGINT})
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		for i, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
			if i >= len(tt.says) || !strings.Contains(line, tt.says[i]) {
				t.Errorf("-o %s, --no-headers %v: line %d: %s", tt.form, tt.noHead, i, line)
			}
		}
	}
}
