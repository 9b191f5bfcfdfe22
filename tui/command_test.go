package tui

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"limpet/tui/screen"
)

// shell runs its words as a script.
func shell(ctx context.Context, words ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", strings.Join(words, " "))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// TestCommandLine runs programs: both outputs come in their order, an answer reaches stdin, a stop
// interrupts, a failure has its code.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ script, asks, press, frame string }{
		{"echo one; echo two >&2; echo three", "", "", "one two three"},
		{"echo why >&2; exit 7", "", "", "why exit code 7"},
		{`printf 'Go on? [y/N] '; read a; echo "said $a"`, "[y/N]", "y", "Go on? [y/N] y said y"},
		{"trap 'echo over; exit 5' INT; echo begun; while :; do sleep 0.1; done", "begun", "esc", "begun over exit code 5"},
		{"kill -9 $$", "", "", "signal: killed"},
	} {
		m := newModel(t.Context(), new(noSource), Options{Env: func(string) string { return "" }, Call: shell})
		next := m.command(screen.Outcome{Run: []string{c.script}})
		m.state.W, m.state.H = 80, 24
		m.state, _ = m.state.Key("D", "D") // shows the pane
		for next != nil {
			msg := next()
			next = m.update(msg)
			if frame := screen.Render(&m.state, 80, 24); c.press != "" && strings.Contains(frame, c.asks) {
				m.key(c.press, c.press)
				c.press = ""
			}
		}
		frame := strings.Join(strings.FieldsFunc(ansi.Strip(screen.Render(&m.state, 80, 24)),
			func(r rune) bool { return strings.ContainsRune(" |\n", r) }), " ")
		if m.process != nil || !strings.Contains(frame, c.frame) {
			t.Errorf("%s: no %q in\n%s", c.script, c.frame, frame)
		}
	}
}

// TestTornRune: a rune whose bytes come apart is shown whole; one that is cut off ends the output.
func TestTornRune(t *testing.T) {
	t.Parallel()
	p := start(t.Context(), shell, []string{`printf 'a\342'; sleep 0.2; printf '\202'; sleep 0.2; printf '\254b\303'`}, time.Millisecond)
	var parts []string
	for ended := false; !ended; {
		msg := p.next().(outputMsg)
		ended = msg.ended
		if parts = append(parts, msg.text); !ended && !utf8.ValidString(msg.text) {
			t.Errorf("torn: %q", parts)
		}
	}
	if all := strings.Join(parts, ""); all != "a€b\xc3" || len(parts) < 3 {
		t.Errorf("%q", parts)
	}
}

// TestCommandsEndTogether: a new command ends the one before, whose output is shown no more; the
// end of the dashboard ends the last one.
func TestCommandsEndTogether(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	m := newModel(ctx, new(noSource), Options{Env: func(string) string { return "" }, Call: shell})
	endless := screen.Outcome{Run: []string{"while :; do echo old; sleep 0.1; done"}}
	m.command(endless)
	before := m.process
	m.command(endless)
	for range before.out {
	}
	if before.err == nil {
		t.Error("the first one has ended well")
	}
	m.update(outputMsg{before, "old", true})
	if m.process == nil || m.process == before {
		t.Fatal("the end of the first one ended the second one")
	}
	end()
	m.process.end()
	if m.process.err == nil {
		t.Error("the second one has ended well")
	}
}
