package job

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/creack/pty"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/tui/cli/command"
)

// atWork is a job that has done so many of 288 dashboards.
func atWork(done int64, errs ...string) api.Job {
	job := api.Job{Spec: api.JobSpec{Action: "pull", Repository: "team-dash"}}
	job.Status = api.JobStatus{State: api.StateWorking, Progress: float64(done) / 2.88, Errors: errs, Summary: []api.JobSummary{{Kind: "Dashboard", Total: 288, Create: done}}}
	return job
}

func TestBar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &bar{w: &out, width: func() int { return 80 }, utf8: true}
	start := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		job  api.Job
		at   time.Duration
		want string
	}{
		{api.Job{Spec: api.JobSpec{Action: "pull", Repository: "team-dash"}, Status: api.JobStatus{Message: "rests"}}, 0, "pull team-dash  pending  rests"},
		{atWork(0), 0, "pull team-dash  ░░░░░░░░░░░░░░░░░░░░    0 %  0/288"},
		{atWork(144), 36 * time.Second, "pull team-dash  ██████████░░░░░░░░░░   50 %  144/288  4.0/s  eta 36s"},
		{atWork(216, "bad"), 54 * time.Second, "pull team-dash  ███████████████░░░░░   75 %  216/288  4.0/s  eta 18s  1 error"},
		{atWork(288), 72 * time.Second, "pull team-dash  ████████████████████  100 %  288/288  4.0/s  eta 0s"},
	} {
		if got := b.text(tt.job, snapshot.Transfer{}, "x", start.Add(tt.at)); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	fetch := api.Job{Spec: atWork(0).Spec, Status: api.JobStatus{State: api.StateWorking, Message: "fetch 1234567"}}
	for want, got := range map[string]snapshot.Transfer{
		"pull team-dash  ░░░░░░░░░░░░░░░░░░░░    0 %  fetch 1234567: connecting, 7s": {Phase: "connecting", Since: start, Percent: -1},
		"pull team-dash  ██████████░░░░░░░░░░   50 %  fetch 1234567: receiving objects 50% (3/6), 1.0 KiB, 15 KiB/s": {
			Phase: "receiving", Since: start, Percent: 50, Objects: 3, Total: 6, Bytes: 1 << 10, Rate: 15 << 10},
	} {
		if got := b.text(fetch, got, "x", start.Add(7*time.Second)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	b.utf8 = false
	if got := b.text(atWork(144), snapshot.Transfer{}, "x", start.Add(36*time.Second)); !strings.Contains(got, "##########----------") {
		t.Errorf("without UTF-8: %s", got)
	}
	foreign := strings.Repeat("漢", 100)
	for state, job := range map[string]api.Job{"working": atWork(1), "pending": {Spec: api.JobSpec{Action: "pull", Repository: "team-dash"}}} {
		job.Status.Message = "\x1b[2J\r" + foreign
		out.Reset()
		b.draw(job, snapshot.Transfer{}, "x", start)
		line, begins := strings.CutPrefix(out.String(), "\r")
		line, ends := strings.CutSuffix(line, "\x1b[K")
		if !begins || !ends || displaywidth.String(line) > 79 || strings.ContainsAny(line, "\x1b\r") || !strings.Contains(line, "[2J 漢") {
			t.Errorf("%s: wider than the terminal, with foreign escapes, or not in the place of the line before: %q", state, &out)
		}
	}
	out.Reset()
	b.erase()
	b.erase()
	if out.String() != "\r\x1b[K" {
		t.Errorf("erased by %q", &out)
	}
}

// TestWhoGetsABarOnATerminal: who can see it; neither a terminal that can only print nor a run of
// CI.
func TestWhoGetsABarOnATerminal(t *testing.T) {
	t.Parallel()
	p, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	defer tty.Close()
	for _, tt := range []struct {
		mode, term, ci string
		want           bool
	}{{"auto", "xterm", "", true}, {"auto", "dumb", "", false}, {"auto", "", "", false}, {"auto", "unknown", "", false}, {"auto", "xterm", "true", false}, {"plain", "xterm", "", false}, {"none", "xterm", "", false}, {"bar", "dumb", "true", true}} {
		s := newSite(t)
		s.Env["TERM"], s.Env["CI"] = tt.term, tt.ci
		e := &command.Env{Flags: &command.Flags{}, Streams: s.streams("", io.Discard, tty)}
		if got := newBar(e, tt.mode).w != nil; got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	s := newSite(t)
	s.Env["TERM"] = "xterm"
	e := &command.Env{Flags: &command.Flags{Accessible: true}, Streams: s.streams("", io.Discard, tty)}
	if newBar(e, "auto").w != nil {
		t.Error("who has the screen read out is drawn a bar")
	}
}

// TestCountsOfAJob: all that is done with an object is done, also when nothing had to be.
func TestCountsOfAJob(t *testing.T) {
	t.Parallel()
	st := api.JobStatus{Summary: []api.JobSummary{{Total: 200, Create: 1, Update: 2, Delete: 4, Noop: 8, Error: 16, Write: 7, Warning: 3}, {Total: 100, Noop: 32}}}
	if done, total := counts(st); done != 63 || total != 300 {
		t.Errorf("%d of %d", done, total)
	}
}

func TestFreshLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	var lines []snapshot.Event
	for i := range 5 {
		lines = append(lines, snapshot.Event{At: at.Add(time.Duration(i) * time.Second), Text: strings.Repeat("x", i)})
	}
	f := new(follower)
	for i, tt := range []struct {
		log  []snapshot.Event
		want int
	}{{nil, 0}, {lines[:2], 2}, {lines[:2], 0}, {lines[1:4], 2}, {lines[4:], 1}} {
		if got := f.freshLines(tt.log); len(got) != tt.want {
			t.Errorf("row %d: %d lines, want %d", i, len(got), tt.want)
		}
	}
}

// TestWaitDoesNotWaitForTheDeletion: a server may keep a job that has ended, and then its status
// says how.
func TestWaitDoesNotWaitForTheDeletion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("begun")
	began := time.Now()
	ended := b.follow(t.Context())
	b.says("begun")
	b.status(map[string]any{"state": "error", "message": "no", "started": time.Now().UnixMilli(), "finished": time.Now().UnixMilli()})
	b.ends(ended, command.ExitJobFailed, "the job ended in error")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestFollowPrintsALineForEachChange: with -o json, and the end as the last.
func TestFollowPrintsALineForEachChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.r.Flags.Output, b.how.Follow = "json", true
	ended := b.follow(t.Context())
	b.says("pending")
	b.claim("begun")
	b.says("working 40% begun")
	b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
	b.ends(ended, command.ExitOK, "")
	lines := strings.Split(strings.TrimSpace(b.out.String()), "\n")
	for i, want := range []string{`"type":"job"`, `"state":"working","progress":40,`, `"type":"ended"`} {
		if len(lines) != 3 || !strings.Contains(lines[i], want) {
			t.Errorf("line %d has no %s:\n%s", i, want, b.out)
		}
	}
	if !strings.Contains(b.errs.String(), "the log of the job is with the agent that runs it") {
		t.Errorf("stderr: %s", b.errs)
	}
}
