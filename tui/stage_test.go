package tui

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// TestCopyDoesNotHoldTheKeysUp: a sheet takes a slow line a minute, and whoever waits for
// that answers no key.
func TestCopyDoesNotHoldTheKeysUp(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := &stage{terminal: newTerminal(Options{In: r, Out: w, Env: func(string) string { return "xterm" }}, false)}
	if err := s.take(); err != nil {
		t.Fatal(err)
	}
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
