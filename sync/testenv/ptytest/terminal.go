// Package ptytest is for tests: a terminal that shows what a program draws on it,
// and keeps count of the bytes that this took. It answers no queries, as a serial
// console does, and can be as slow as one.
package ptytest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

// Line is how a terminal is connected. The zero value has no limits.
type Line struct {
	Rate  int           // bytes a second from the program; 0 = any
	Delay time.Duration // each way
}

// Terminal is a terminal with a program on it.
type Terminal struct {
	Process *os.Process

	pty  *os.File
	line Line
	read chan struct{} // closed when all that was sent is on the screen
	end  chan error

	mu     sync.Mutex // guards what follows
	screen vt10x.Terminal
	torn   []byte // the first bytes of a letter whose others have not come yet
	bytes  int64
	bursts []Burst
	raw    []byte        // the first of what was sent, at most rawKept
	moved  chan struct{} // closed when something was drawn
}

// Burst is what came without a pause of burstGap.
type Burst struct {
	At    time.Time // of its first byte
	Bytes int
}

const (
	burstGap = 20 * time.Millisecond
	rawKept  = 1 << 20
)

// Start runs a command on a terminal of w by h cells, until the end of the test.
func Start(t testing.TB, cmd *exec.Cmd, w, h int, line Line) *Terminal {
	t.Helper()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: uint16(h), Cols: uint16(w)})
	if err != nil {
		t.Fatal(err)
	}
	tt := &Terminal{Process: cmd.Process, pty: f, line: line, read: make(chan struct{}), end: make(chan error, 1),
		screen: vt10x.New(vt10x.WithSize(w, h)), moved: make(chan struct{})}
	go func() {
		defer close(tt.read)
		tt.show()
	}()
	go func() { tt.end <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		f.Close()
		<-tt.read
	})
	return tt
}

// show draws what the program sends, no faster than the line carries it. What is
// not read yet the program cannot send, as on a real line.
func (tt *Terminal) show() {
	size := 64 << 10
	if tt.line.Rate > 0 {
		size = max(tt.line.Rate/100, 1)
	}
	buf := make([]byte, size)
	for {
		n, err := tt.pty.Read(buf)
		if n > 0 {
			if tt.line.Rate > 0 {
				<-time.After(time.Duration(n) * time.Second / time.Duration(tt.line.Rate))
			}
			tt.draw(buf[:n])
		}
		if err != nil { // EIO: the last process has left the terminal
			return
		}
	}
}

func (tt *Terminal) draw(p []byte) {
	now := time.Now()
	tt.mu.Lock()
	defer tt.mu.Unlock()
	whole := append(tt.torn, p...)
	end := unbroken(whole)
	_, _ = tt.screen.Write(whole[:end]) // it takes everything, but no half letters
	tt.torn = append([]byte(nil), whole[end:]...)
	tt.bytes += int64(len(p))
	if room := rawKept - len(tt.raw); room > 0 {
		tt.raw = append(tt.raw, p[:min(len(p), room)]...)
	}
	if n := len(tt.bursts); n > 0 && now.Sub(tt.bursts[n-1].At) < burstGap {
		tt.bursts[n-1].Bytes += len(p)
	} else {
		tt.bursts = append(tt.bursts, Burst{now, len(p)})
	}
	close(tt.moved)
	tt.moved = make(chan struct{})
}

// unbroken is how much of p ends with a whole letter.
func unbroken(p []byte) int {
	for n := 1; n <= utf8.UTFMax && n <= len(p); n++ {
		if c := p[len(p)-n]; utf8.RuneStart(c) {
			if utf8.FullRune(p[len(p)-n:]) {
				break
			}
			return len(p) - n
		}
	}
	return len(p)
}

// Press types keys. On a line with a delay they arrive later.
func (tt *Terminal) Press(t testing.TB, keys string) {
	t.Helper()
	if tt.line.Delay > 0 {
		<-time.After(tt.line.Delay)
	}
	if _, err := tt.pty.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// Resize gives the terminal another size.
func (tt *Terminal) Resize(t testing.TB, w, h int) {
	t.Helper()
	tt.mu.Lock()
	tt.screen.Resize(w, h)
	tt.mu.Unlock()
	if err := pty.Setsize(tt.pty, &pty.Winsize{Rows: uint16(h), Cols: uint16(w)}); err != nil {
		t.Fatal(err)
	}
}

// Text is what is on the screen: its lines, joined by newlines.
func (tt *Terminal) Text() string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return strings.TrimSuffix(tt.screen.String(), "\n")
}

// Cells calls fn for each cell of the screen, line by line.
func (tt *Terminal) Cells(fn func(x, y int, g vt10x.Glyph)) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	w, h := tt.screen.Size()
	for y := range h {
		for x := range w {
			fn(x, y, tt.screen.Cell(x, y))
		}
	}
}

// Bytes is how many bytes were sent so far, and Raw the first of them.
func (tt *Terminal) Bytes() int64 {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return tt.bytes
}

// Raw is the first mebibyte of what was sent.
func (tt *Terminal) Raw() string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return string(tt.raw)
}

// Bursts are those since that time.
func (tt *Terminal) Bursts(since time.Time) []Burst {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	var out []Burst
	for _, b := range tt.bursts {
		if !b.At.Before(since) {
			out = append(out, b)
		}
	}
	return out
}

// Await waits until the screen is as ok says, and fails the test after limit. It
// looks each time that something is drawn, and returns how long it took.
func (tt *Terminal) Await(t testing.TB, what string, limit time.Duration, ok func(text string) bool) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		tt.mu.Lock()
		text, moved := tt.screen.String(), tt.moved
		tt.mu.Unlock()
		if ok(text) {
			return time.Since(began) + tt.line.Delay
		}
		select {
		case <-moved:
		case <-ctx.Done():
			t.Fatalf("%s: not after %v; the screen:\n%s", what, limit, text)
		}
	}
}

// End waits for the end of the program.
func (tt *Terminal) End(t testing.TB, limit time.Duration) error {
	t.Helper()
	select {
	case err := <-tt.end:
		<-tt.read
		return err
	case <-time.After(limit):
		t.Fatalf("the program does not end; the screen:\n%s", tt.Text())
		return nil
	}
}
