package job

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/snapshot"
)

// showJobs has the socket of a daemon beside a bench. Show gives it how the job looks in the next
// snapshot, nil where it is in none.
func (b *bench) showJobs() (show func(job *snapshot.Job)) {
	b.t.Helper()
	b.r.Flags.State = filepath.Join(b.t.TempDir(), "limpet.db")
	next, _ := clitest.ServeSnapshots(b.t, b.r.Flags.State, b.store)
	next(new(snapshot.Snapshot))
	b.t.Cleanup(func() { b.s.Daemon.Close() })
	var err error
	if b.s.Daemon, err = control.Attach(b.t.Context(), agent.SocketPath(b.r.Flags.State)); err != nil {
		b.t.Fatal(err)
	}
	return func(job *snapshot.Job) {
		snap := &snapshot.Snapshot{Jobs: []snapshot.Job{{UID: "other", Name: "other", Log: []snapshot.Event{{Text: "not this"}}}}}
		if job != nil {
			job.UID = string(b.job.GetUID())
			snap.Jobs = append(snap.Jobs, *job)
		}
		next(snap)
	}
}

// logOf are lines of a log.
func logOf(texts ...string) (out []snapshot.Event) {
	for i, text := range texts {
		out = append(out, snapshot.Event{At: time.Date(2026, 11, 20, 14, 0, i, 0, time.UTC), Level: "info", Text: text})
	}
	return out
}

// TestLogsOfARecord: the record is printed. --follow ends with the exit code of the job.
func TestLogsOfARecord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state string
		code  int
	}{{"success", command.ExitOK}, {"warning", command.ExitPartial}, {"error", command.ExitJobFailed},
		{"cancelled", command.ExitCancelled}, {"dead", command.ExitJobFailed}} {
		s := newSite(t)
		s.Record(t, state.Record{UID: "u1", Namespace: "default", Name: "r-sync", Repository: "r", Action: "pull", State: tt.state, Message: "it ended",
			Finished: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), Status: []byte(`{"state":"error"}`)})
		if out, _ := s.Must(t, command.ExitOK, "job", "logs", "r-sync"); !strings.Contains(out, "it ended") {
			t.Errorf("%s: %s", tt.state, out)
		}
		_, errs := s.Must(t, tt.code, "job", "logs", "r-sync", "--follow")
		if tt.code != command.ExitOK && !strings.Contains(errs, "try: limpet history show u1") {
			t.Errorf("%s: %s", tt.state, errs)
		}
	}
}

// TestLogsAfterTheEnd: the lines that the daemon had while the job ran, with their levels; the
// record once it has none.
func TestLogsAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	show := b.showJobs()
	b.end(&state.Record{Namespace: "default", Name: "r-sync", State: "warning", Message: "it ended"})
	for _, daemon := range []*snapshot.Job{{Log: logOf("first", "last"), Finished: time.Now()}, nil} {
		show(daemon)
		b.out.Reset()
		err := logsCmd{Job: "r-sync", Follow: true}.ended(t.Context(), b.r, b.s)
		want := "2026-11-20T14:00:00Z info  first\n2026-11-20T14:00:01Z info  last\n"
		if got := b.out.String(); daemon != nil && got != want || daemon == nil && !strings.Contains(got, "it ended") {
			t.Errorf("%s", got)
		}
		if code, _ := command.Classify(err); code != command.ExitPartial {
			t.Errorf("exit %d: %v", code, err)
		}
	}
}

// TestFollowPrintsTheLastLines: those that the snapshot of the end has, which comes after
// the API has told that the job is gone.
func TestFollowPrintsTheLastLines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	show, out := b.showJobs(), &clitest.Buffer{}
	b.r.Out, b.how.Follow = out, true
	b.claim("begun")
	ended := b.follow(t.Context())
	b.says("begun")
	show(&snapshot.Job{Log: logOf("first")})
	b.until("the first line", func() bool { return strings.Contains(out.String(), " first\n") })
	b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
	show(&snapshot.Job{Log: logOf("first", "last"), Finished: time.Now()})
	b.ends(ended, command.ExitOK, "")
	if got := out.String(); !strings.Contains(got, " first\n2026-11-20T14:00:01Z info  last\njob/r-sync success in ") {
		t.Errorf("%s", got)
	}
}
