package tui

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// staged is a stage on a terminal that takes what is read from r, and what it writes to.
func staged(t *testing.T) (s *stage, r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	s = &stage{terminal: newTerminal(Options{In: r, Out: w, Env: func(string) string { return "xterm" }}, false)}
	if err := s.take(); err != nil {
		t.Fatal(err)
	}
	return s, r, w
}

// TestTerminalIsWantedBack: who leaves while a copy is on its way over a slow line does
// not wait for the rest of it, nor does what the terminal says of itself hold the keys up.
func TestTerminalIsWantedBack(t *testing.T) {
	t.Parallel()
	s, r, w := staged(t)
	go s.run()
	copied, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(copied); s.copy(strings.Repeat("x", 10<<20)) }()
	from, got := bufio.NewReader(r), ""
	for !strings.Contains(got, "\x1b]52;") {
		piece, err := from.ReadString(';')
		if err != nil {
			t.Fatal(err)
		}
		got += piece
	}
	for range 100 { // nothing is taken now
		s.hear(ansi.ModeSynchronizedOutput, ansi.ModeReset)
	}
	go func() { defer close(ended); s.end(); w.Close() }()
	<-s.stop // it is wanted back now
	rest, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	<-copied
	<-ended
	if cut := strings.IndexByte(string(rest), 0x18); cut < 0 || cut > 1<<20 || !strings.Contains(string(rest[cut:]), ansi.ResetModeAltScreenSaveCursor) {
		t.Errorf("%d bytes came, cut at %d: %q", len(rest), cut, string(rest[len(rest)-100:]))
	}
}

// TestCopyDoesNotHoldTheKeysUp: a sheet takes a slow line a minute, and whoever waits for
// that answers no key.
func TestCopyDoesNotHoldTheKeysUp(t *testing.T) {
	t.Parallel()
	s, r, _ := staged(t)
	text := strings.Repeat("x", 1<<20) // the pipe holds 64 KiB
	sends := make(chan tea.Cmd, 1)
	go func() {
		_, cmd := s.Update(copyMsg(text))
		sends <- cmd
	}()
	select {
	case cmd := <-sends:
		go cmd()
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the terminal")
	}
	from := bufio.NewReader(r)
	for want := ansi.SetSystemClipboard(text); ; {
		if got, err := from.ReadString('\a'); err != nil {
			t.Fatal(err)
		} else if strings.HasSuffix(got, want) {
			return
		}
	}
}
