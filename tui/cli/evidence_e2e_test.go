package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// evidence is what people and other processes see of an agent: the screens of a
// dashboard on a terminal, what commands print of its objects, and the arguments
// of its process and of what it has started. repo is opened on the dashboard.
func (h *home) evidence(t *testing.T, d *daemon, repo string) string {
	t.Helper()
	var seen strings.Builder
	for _, args := range [][]string{{"get", "repositories", "-o", "yaml"}, {"get", "connections", "-o", "yaml"}, {"get", "jobs", "-o", "yaml"}, {"history", "list", "-o", "json"},
		{"repo", "list", "-o", "wide"}, {"repo", "list", "-o", "json"}, {"job", "list", "-o", "json"}, {"status"}, {"status", "-o", "json"}, {"repo", "show", repo}, {"doctor"}, {"config", "show"}} {
		r := h.run(t, args...) // not all is well
		seen.WriteString(r.out + r.err)
	}
	screen := h.terminal(t)
	screen.shows(t, repo)
	for _, keys := range []string{"1", "\t", "2", "\r", "\x1b", "3", "\r", "h", "\r", "?", "?"} {
		screen.walk(t, keys)
	}
	screen.press(t, "q")
	if err := screen.end(t); err != nil {
		t.Error(err)
	}
	sent := screen.screen.String()
	seen.WriteString(sent + controls.ReplaceAllString(sent, ""))
	seen.WriteString(arguments(t, d.cmd.Process.Pid))
	return seen.String()
}

// controls are what moves the cursor and changes colours.
var controls = regexp.MustCompile(`\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-_])`)

// walk presses keys and waits until something is drawn, if anything is.
func (tt *terminal) walk(t *testing.T, keys string) {
	t.Helper()
	before := len(tt.screen.String())
	tt.press(t, keys)
	tick, enough := time.NewTicker(10*time.Millisecond), time.After(time.Second)
	defer tick.Stop()
	for len(tt.screen.String()) == before {
		select {
		case <-tick.C:
		case <-enough:
			return
		}
	}
}

// arguments are those of a process and of its children.
func arguments(t *testing.T, pid int) string {
	t.Helper()
	if _, err := os.Stat("/proc/self/task"); err != nil {
		return "" // not Linux
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) == 0 {
		t.Errorf("the arguments of the agent: %q, %v", line, err)
	}
	text := string(line)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list) // a thread may have ended
		for child := range strings.FieldsSeq(string(children)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			text += string(line)
		}
	}
	return text
}
