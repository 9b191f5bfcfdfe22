package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/sync/control"
	"limpet/sync/testenv"
	"limpet/tui/cli"
)

// TestProgressOnATerminal: a bar that is gone at the end; Ctrl-C leaves the job at
// work and says how to see it again.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	gate := newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	tt := h.terminal(t, "repo", "pull", "gated", "--full", "--wait")
	tt.shows(t, "pull gated  ░░░░")
	tt.press(t, "\x03")
	if code := exitOf(tt.end(t)); code != cli.ExitCancelled {
		t.Errorf("Ctrl-C: exit %d", code)
	}
	out := tt.screen.String()
	if rest := out[strings.LastIndex(out, "\x1b[K"):]; strings.Contains(rest, "░") || !strings.Contains(rest, "stopped waiting; the job goes on") || !strings.Contains(rest, "try: limpet job watch gated-sync") {
		t.Errorf("the end of the wait: %q", tail(out, 300))
	}
	if !h.daemonWorks(t) {
		t.Error("the job does not go on")
	}
	watch := h.terminal(t, "job", "watch", "gated-sync")
	plain := h.aside(t, "job", "watch", "gated-sync")
	forced := h.aside(t, "job", "watch", "gated-sync", "--progress", "none")
	watch.shows(t, "░░░░")
	gate.open()
	if err := watch.end(t); err != nil {
		t.Errorf("%v: %q", err, tail(watch.screen.String(), 300))
	}
	out = watch.screen.String()
	if rest := out[strings.LastIndex(out, "\x1b[K"):]; !strings.Contains(rest, "job/gated-sync success in ") || strings.Contains(rest, "█") {
		t.Errorf("the bar is still there: %q", tail(out, 300))
	}
	if r := plain(); strings.ContainsAny(r.err, "\r\x1b█") || !strings.Contains(r.err, " gated-sync working ") || r.code != 0 {
		t.Errorf("off a terminal: exit %d %q", r.code, r.err)
	}
	if r := forced(); r.err != "" || r.code != 0 {
		t.Errorf("--progress none: exit %d %q", r.code, r.err)
	}
}

// TestWaitForAJobThatIsThere: who would wait waits for the pull that the agent or
// another person has asked for, when that does what was asked and has not begun. After
// one that has begun comes the own one, since that may not have seen the last commit.
func TestWaitForAJobThatIsThere(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	gate := newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	h.must(t, 0, "repo", "pull", "gated")
	until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
	for _, tt := range []struct{ args, says, try string }{
		{"repo pull gated", `repository "gated" has a job of this kind already: `, "limpet job watch gated-sync\n"},
		{"repo pull gated --full", "has a pull already, an incremental one, and --full asks for everything: ", "limpet job watch gated-sync    # then this command again\n"},
		{"repo pull gated --full --wait", "has a pull already, an incremental one, and --full asks for everything: ", "limpet job watch gated-sync    # then this command again\n"},
		{"job create gated --wait", "has a pull already, an incremental one, and --full asks for everything: ", "limpet job watch gated-sync    # then this command again\n"},
		{"repo pull gated --allow-mass-delete --wait", "has a job of this kind already, with other options: ", "limpet job watch gated-sync    # then this command again\n"},
	} {
		if r := h.must(t, 1, strings.Fields(tt.args)...); !strings.Contains(r.err, tt.says) || !strings.HasSuffix(r.err, "  try: "+tt.try) {
			t.Errorf("limpet %s: %s", tt.args, r.err)
		}
	}
	w := []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--incremental", "--follow"), h.waiter(t, "repo", "pull", "gated", "--follow", "-q", "-o", "json", "--progress", "none")}
	for _, one := range w[:2] {
		until(t, "it says for what it waits", func() bool {
			return strings.Contains(one.errs.String(), "gated-sync has begun already; this asks again after its end\n")
		})
	}
	gate.open()
	for _, one := range w {
		if code := one.ends(t); code != 0 || !strings.Contains(one.out.String(), "job/gated-sync success in ") && !strings.Contains(one.out.String(), `"type":"ended"`) {
			t.Errorf("exit %d: %s%s", code, one.out, one.errs)
		}
	}
	if w[2].errs.String() != "" {
		t.Errorf("-q: %s", w[2].errs)
	}
	before := len(h.history(t))
	if before < 2 || before > 4 {
		t.Errorf("%d jobs have run", before)
	}

	h.must(t, 0, "drain", "--wait")
	h.must(t, 0, "repo", "pull", "gated", "--full")
	w = []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--follow")}
	for _, one := range w {
		until(t, "it waits for the one that waits", func() bool {
			return strings.Contains(one.errs.String(), "gated-sync (pull full) is there already; this waits for its end\n")
		})
	}
	h.must(t, 0, "drain", "--off")
	for _, one := range w {
		if code := one.ends(t); code != 0 || !strings.Contains(one.out.String(), "job/gated-sync success in ") {
			t.Errorf("exit %d: %s%s", code, one.out, one.errs)
		}
	}
	if after := len(h.history(t)); after != before+1 {
		t.Errorf("%d jobs have run beside %d", after-before, before)
	}
}

// TestFollowPrintsTheWholeLog: all lines that the agent has of the job, to the last one.
func TestFollowPrintsTheWholeLog(t *testing.T) {
	t.Parallel()
	known := readSchemas(t)
	h := newHome(t)
	gate := newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	waits := h.terminal(t, "repo", "pull", "gated", "--full", "--follow", "-o", "json", "-q")
	waits.shows(t, `"text":"job claimed"`)
	logs := h.terminal(t, "job", "logs", "gated-sync", "--follow", "-o", "json", "-q")
	logs.shows(t, `"text":"job claimed"`)
	gate.open()
	for _, tt := range []*terminal{waits, logs} {
		if err := tt.end(t); err != nil {
			t.Errorf("%v: %s", err, tt.screen)
		}
	}
	daemon, err := control.Attach(t.Context(), filepath.Join(h.dir, "state", "limpet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	snap, err := daemon.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, j := range snap.Jobs {
		for _, l := range j.Log {
			want = append(want, l.Text)
		}
	}
	if len(snap.Jobs) != 1 || len(want) < 3 {
		t.Fatalf("jobs %+v", snap.Jobs)
	}
	for name, tt := range map[string]*terminal{"job logs --follow": logs, "repo pull --follow": waits} {
		var got []string
		for line := range strings.Lines(strings.ReplaceAll(tt.screen.String(), "\r", "")) {
			known.keeps(t, "stream", line)
			var one struct{ Log *struct{ Text string } }
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%s: %v: %s", name, err, line)
			}
			if one.Log != nil {
				got = append(got, one.Log.Text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s prints %q, the agent has %q", name, got, want)
		}
	}
}

// TestStatusWatch: a line for each change, also when the daemon goes.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if r := h.must(t, 1, "status", "--watch"); !strings.Contains(r.err, "nothing to watch") {
		t.Errorf("without a daemon: %s", r.err)
	}
	d := h.daemon(t)
	table := h.terminal(t, "status", "--watch", "--color", "never")
	lines := h.terminal(t, "status", "--watch", "-o", "json")
	table.shows(t, "STATE")
	table.shows(t, "  ok ")
	lines.shows(t, `"type":"status","schemaVersion":1,`)
	h.must(t, 0, "drain")
	table.shows(t, "  drained ")
	if d.stop(t) != 0 {
		t.Error("the daemon did not end well")
	}
	table.shows(t, "  away ")
	lines.shows(t, `"live":null`)
	for _, tt := range []*terminal{table, lines} {
		tt.press(t, "\x03")
		if code := exitOf(tt.end(t)); code != cli.ExitCancelled {
			t.Errorf("Ctrl-C: exit %d", code)
		}
	}
	known := readSchemas(t)
	said := strings.ReplaceAll(strings.Trim(lines.screen.String(), "^C\r\n"), "\r", "")
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "{") {
			known.keeps(t, "stream", line)
		}
	}
}

// TestStatusWatchReadOut: who has it read out is told sentences, on a terminal with
// colours and on a pipe, also that the daemon goes.
func TestStatusWatchReadOut(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	h.must(t, 0, "repo", "create", "ill", "--url", "https://127.0.0.1:1/boards.git")
	until(t, "it is failing", func() bool { return strings.Contains(h.run(t, "repo", "list").out, "failing") })
	onTerminal := h.terminal(t, "status", "--watch", "--accessible", "--color", "always")
	piped, heard := h.command(context.WithoutCancel(t.Context()), t, "status", "--watch", "--accessible"), &log{}
	piped.Stdout = heard
	if err := piped.Start(); err != nil {
		t.Fatal(err)
	}
	onTerminal.shows(t, "the agent is degraded. Jobs: none. Repositories: 1, 1 with something wrong. Why: ill is not healthy: ")
	h.must(t, 0, "drain")
	onTerminal.shows(t, "the agent is drained. Jobs: none.")
	if d.stop(t) != 0 {
		t.Error("the daemon did not end well")
	}
	onTerminal.shows(t, "the agent is away. Why: ")
	onTerminal.press(t, "\x03")
	if code := exitOf(onTerminal.end(t)); code != cli.ExitCancelled {
		t.Errorf("Ctrl-C: exit %d", code)
	}
	until(t, "who reads the pipe is told", func() bool { return strings.Contains(heard.String(), "the agent is away. Why: ") })
	if err := piped.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitOf(piped.Wait()); code != cli.ExitCancelled {
		t.Errorf("SIGINT: exit %d", code)
	}
	spoken := strings.ReplaceAll(onTerminal.screen.String(), "^C", "")
	for name, out := range map[string]string{"terminal": spoken[:strings.LastIndex(spoken, "limpet: ")], "pipe": heard.String()} {
		readable(t, out)
		if strings.Contains(out, "  ") || strings.Contains(out, "WORKING") || !strings.HasPrefix(out, "Each change is a sentence. Times are UTC.") {
			t.Errorf("on a %s there are columns:\n%s", name, out)
		}
	}
}
