package e2e

import (
	"fmt"
	"testing"
	"time"

	"limpet/sync/testenv/suite"
)

// TestTerminalBudgets: a dashboard at rest sends little and takes next to no processor
// time, and answers a key at once. The limits of time hold on a machine that does
// nothing else (-figures); beside other tests they are wider.
func TestTerminalBudgets(t *testing.T) {
	suite.Full(t)
	const (
		restBytes = 60                     // a second: the clock
		restCPU   = 0.005                  // of a core
		keyWithin = 100 * time.Millisecond // to the changed screen, median
	)
	wider := size(10, 1)
	h := newHome(t)
	for i := range 20 {
		h.must(t, 0, "repo", "create", fmt.Sprintf("repo-%02d", i), "--url", "https://127.0.0.1:1/x.git", "--disabled")
	}
	h.daemon(t, "--controllers", "off", "--log-level", "error")
	tt := h.terminal(t)
	tt.showsNow(t, "repo-00")
	<-time.After(2 * time.Second) // the start
	rest := time.Duration(size(5, 60)) * time.Second
	bytes, before := tt.Bytes(), readUsage(t, tt.Process.Pid)
	<-time.After(rest)
	after := readUsage(t, tt.Process.Pid)
	sent, cpu := float64(tt.Bytes()-bytes)/rest.Seconds(), (after.cpu-before.cpu).Seconds()/rest.Seconds()
	if sent > restBytes || cpu > restCPU*float64(wider) {
		t.Errorf("at rest: %.0f B/s, %.2f %% of a core", sent, 100*cpu)
	}
	tt.Press(t, "3")
	tt.showsNow(t, "repo-19")
	var took []time.Duration
	for i := range size(20, 500) {
		screen := tt.Text()
		tt.Press(t, []string{"j", "k"}[i%2])
		took = append(took, tt.Await(t, "the cursor moves", callTimeout, func(s string) bool { return s != screen+"\n" && s != screen }))
		<-time.After(20 * time.Millisecond)
	}
	if median(took) > keyWithin*time.Duration(wider) {
		t.Errorf("a key is answered after %s", median(took))
	}
	t.Logf("at rest %.0f B/s, %.2f %% of a core; %s; a key is answered after %s, at most %s", sent, 100*cpu, after, median(took), quantile(took, 1))
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
