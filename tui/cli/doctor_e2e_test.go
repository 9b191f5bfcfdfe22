package cli_test

import (
	"strings"
	"testing"
)

// TestDoctorAsksTheTerminal: one that says nothing holds it up for 200 ms, and its
// answer does not end up on the screen.
func TestDoctorAsksTheTerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	silent := h.terminal(t, "doctor")
	silent.shows(t, "\x1b[c")
	silent.end(t)
	if out := silent.screen.String(); !strings.Contains(out, "80x24, TERM xterm-256color, 256 colours, answers no query") {
		t.Errorf("a silent terminal: %q", out)
	}
	for _, call := range [][]string{{"version"}, {"status"}, {"repo", "list"}} {
		tt := h.terminal(t, call...)
		tt.end(t)
		if out := tt.screen.String(); strings.Contains(out, "\x1b") {
			t.Errorf("%v sends %q", call, out)
		}
	}
	// The answer is typed ahead, so that it is there whatever else the machine does.
	living := h.terminal(t, "doctor")
	living.press(t, "\x1b[?62;4c")
	living.end(t)
	if out := living.screen.String(); strings.Contains(out, "answers no query") || !strings.Contains(out, "256 colours") {
		t.Errorf("one that answers: %q", out)
	}
}
