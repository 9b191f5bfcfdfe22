package cli_test

import (
	"strings"
	"testing"
)

// TestTerminalThatCanOnlyPrint: where TERM says so, or nothing, what a command shows and
// asks is what --accessible has it be, without an escape byte; a pipe keeps its columns.
func TestTerminalThatCanOnlyPrint(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/x.git", "--disabled")
	for _, term := range []string{"dumb", "", "unknown"} {
		for _, c := range []struct{ call, typed, want string }{
			{"repo list", "", "name: boards\r\n"},
			{"repo show boards", "", "repository: default/boards\r\n"},
			{"doctor", "", "terminal"},
			{"delete repository boards", "\n", "1: go on\r\n2: change nothing\r\n"},
			{"", "", "state file: "},
			{"demo --once", "", "the first pull has succeeded"},
		} {
			tt := h.on(t, term, strings.Fields(c.call)...)
			tt.shows(t, c.want)
			if c.typed != "" {
				tt.press(t, c.typed)
			}
			_ = tt.end(t) // some end with the state of things
			readable(t, strings.ReplaceAll(tt.screen.String(), "\a", ""))
		}
	}
	h.env = append(h.env, "TERM=")
	if r := h.must(t, 0, "repo", "list"); !strings.HasPrefix(r.out, "NAME ") {
		t.Errorf("on a pipe without TERM: %q", r.out)
	}
}
