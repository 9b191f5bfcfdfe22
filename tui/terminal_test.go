package tui

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"golang.org/x/term"
)

// TestTerminalIsGivenBack: each mode that is set is undone, and the line is as it
// was, how often it is taken and given.
func TestTerminalIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, mouse := range map[string]bool{"with the mouse": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			was, err := term.GetState(int(near.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			tt := newTerminal(Options{In: near, Out: near, Env: func(string) string { return "" }}, mouse)
			if w, h := tt.size(); w != 80 || h != 24 {
				t.Errorf("a console that does not know its size has %dx%d", w, h)
			}
			tt.can(ansi.ModeUnicodeCore, ansi.ModeReset) // an answer to somebody before
			if tt.brush.words {
				t.Error("a terminal that is not taken is asked for something")
			}
			for range 2 {
				if err := tt.take(); err != nil {
					t.Fatal(err)
				}
				if raw, _ := term.GetState(int(near.Fd())); *raw == *was {
					t.Error("the line is not raw")
				}
				tt.can(ansi.ModeUnicodeCore, ansi.ModeReset)
				tt.paint(frame{text: "a frame", w: 7, h: 1})
				tt.give()
				tt.give()
				tt.paint(frame{text: "too late", w: 8, h: 1})
				tt.copy("too late")
				if is, _ := term.GetState(int(near.Fd())); *is != *was {
					t.Error("the line is not as it was")
				}
			}
			near.Close()
			sent, _ := io.ReadAll(far) // the last one has left: EIO
			on := map[string]bool{}
			for _, m := range regexp.MustCompile(`\x1b\[\?([0-9]+)([hl])`).FindAllStringSubmatch(string(sent), -1) {
				if m[1] != "1003" { // off in any case
					on[m[1]] = m[2] == "h"
				}
			}
			for _, mode := range []string{"1049", "2004", "2027", "1002", "1006"} {
				if is, known := on[mode]; is || !known && (mouse || !strings.HasPrefix(mode, "100")) {
					t.Errorf("mode %s: set %v, ever %v", mode, is, known)
				}
				delete(on, mode)
			}
			if delete(on, "7"); len(on) != 1 || !on["25"] { // the cursor; lines that wrap are never off for long
				t.Errorf("other modes are left: %v", on)
			}
			if n := strings.Count(string(sent), "\x1b[>1u"); n != 2 || strings.Count(string(sent), "\x1b[<1u") != n {
				t.Errorf("the keyboard is taken %d times and given %d times", n, strings.Count(string(sent), "\x1b[<1u"))
			}
			if n := strings.Count(string(sent), "\x1b[?2026$p"); n != 1 {
				t.Errorf("asked %d times what it can do", n)
			}
			if strings.Contains(string(sent), "too late") {
				t.Error("something was sent to the shell")
			}
		})
	}
}

// TestTerminalThatIsSlow: nobody waits for a terminal that takes nothing, and of
// what came meanwhile it gets the newest alone, whole if one of them was to be.
func TestTerminalThatIsSlow(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tt := newTerminal(Options{In: r, Out: w, Env: func(string) string { return "xterm" }}, false)
	if err := tt.take(); err != nil {
		t.Fatal(err)
	}
	lines := func(letter string) string {
		return strings.TrimSuffix(strings.Repeat(strings.Repeat(letter, 200)+"\n", 100), "\n")
	}
	for i := range 1000 { // 20 MB; the pipe holds 64 KiB
		tt.show(frame{lines(string(rune('A' + i%20))), 200, 100, i == 500})
		if i == 0 {
			go tt.run()
		}
	}
	tt.show(frame{lines("z"), 200, 100, false})
	g, sent := newGlass(200, 100, map[string]rune{}), 0
	for buf := make([]byte, 4096); g.Cell(199, 99).Char != 'z' || g.flawOf(lines("z")) != ""; {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		g.send(string(buf[:n]))
	}
	if sent > 200_000 {
		t.Errorf("%d bytes were sent to show the last frame", sent)
	}
	tt.end()
	w.Close()
	if rest, _ := io.ReadAll(r); !strings.Contains(string(rest), ansi.ResetModeAltScreenSaveCursor) {
		t.Errorf("not given back: %q", rest)
	}
}
