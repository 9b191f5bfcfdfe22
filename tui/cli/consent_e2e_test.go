package cli_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"limpet/tui/cli"
)

// TestAskedOnATerminal: on a terminal a person is asked before something is gone
// for good; Enter alone keeps it, and so does Ctrl-C. Nobody else is asked.
func TestAskedOnATerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, name := range []string{"a", "b", "c"} {
		h.must(t, 0, "repo", "create", name, "--url", "https://git.example.com/x.git")
	}
	going := func(name string) bool {
		return strings.Contains(h.must(t, 0, "repo", "show", name).out, "being deleted")
	}
	for _, answer := range []string{"\r", "n\r", "yo\r", "\x03"} {
		tt := h.terminal(t, "delete", "repository", "a")
		tt.shows(t, "This deletes repository default/a for good: the folders and dashboards that it has made are deleted too, its waiting jobs are deleted, one that runs is waited for. Go on? [y/N]")
		tt.press(t, answer)
		if code := exitOf(tt.end(t)); code != cli.ExitCancelled {
			t.Errorf("%q: exit %d\n%s", answer, code, tt.screen)
		}
		if answer != "\x03" && !strings.Contains(tt.screen.String(), "nothing was changed") {
			t.Errorf("%q: %s", answer, tt.screen)
		}
		if going("a") {
			t.Errorf("%q deletes", answer)
		}
	}
	tt := h.terminal(t, "delete", "repository", "a")
	tt.shows(t, "Go on? [y/N]")
	tt.press(t, "y\r")
	if err := tt.end(t); err != nil {
		t.Errorf("yes: %v\n%s", err, tt.screen)
	}
	tt = h.terminal(t, "delete", "repository", "b", "--yes")
	if err := tt.end(t); err != nil || strings.Contains(tt.screen.String(), "Go on?") {
		t.Errorf("--yes: %v\n%s", err, tt.screen)
	}
	h.must(t, 0, "delete", "repository", "c")
	for _, name := range []string{"a", "b", "c"} {
		if !going(name) {
			t.Errorf("%s is not deleted", name)
		}
	}
	for keep, asks := range map[string]string{"0": "This removes all records for good.", "1": "This removes all records but the newest for good.", "2": "This removes all records but the newest 2 for good."} {
		tt = h.terminal(t, "history", "prune", "--keep", keep)
		tt.shows(t, asks+" Go on? [y/N]")
		tt.press(t, "\r")
		if code := exitOf(tt.end(t)); code != cli.ExitCancelled || !strings.Contains(tt.screen.String(), "  try: limpet history prune --keep "+keep+" --yes    # does not ask") {
			t.Errorf("prune: exit %d\n%s", code, tt.screen)
		}
	}
}

// exitOf is the exit code of a process by the error of waiting for it.
func exitOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
