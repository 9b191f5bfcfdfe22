package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// TestTablesOnATerminal: a repository whose host is away is told in red on a terminal,
// and without any escape byte where there are no colours.
func TestTablesOnATerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.daemon(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/boards.git")
	until(t, "it is failing", func() bool { return strings.Contains(h.run(t, "repo", "list").out, "failing") })
	const red = "\x1b[1;31mfailing\x1b[0m"
	tests := []struct {
		term, env, args string
		red             bool
	}{
		{"xterm-256color", "", "", true},
		{"linux", "", "", true},
		{"xterm-256color", "", "--color never", false},
		{"xterm-256color", "", "--theme mono", false},
		{"xterm-256color", "", "--accessible", false},
		{"xterm-256color", "", "-o json", false},
		{"xterm-256color", "NO_COLOR=1", "", false},
		{"xterm-256color", "NO_COLOR=1", "--color always", true},
		{"dumb", "", "", false},
	}
	for _, tt := range tests {
		cmd := h.command(context.WithoutCancel(t.Context()), t, append([]string{"repo", "list"}, strings.Fields(tt.args)...)...)
		cmd.Env = append(slices.Clone(cmd.Env), "TERM="+tt.term, tt.env)
		screen := onTerminal(t, cmd)
		screen.end(t)
		out := screen.screen.String()
		if tt.red && !strings.Contains(out, red) || !tt.red && strings.Contains(out, "\x1b") || out == "" {
			t.Errorf("%+v: %q", tt, out)
		}
	}
	if r := h.must(t, 0, "repo", "list", "--color", "always"); !strings.Contains(r.out, red) {
		t.Errorf("on a pipe with --color always: %q", r.out)
	}
	screen := h.terminal(t, "version")
	screen.end(t)
	if out := screen.screen.String(); strings.Contains(out, "\x1b") || out == "" {
		t.Errorf("version: %q", out)
	}
}
