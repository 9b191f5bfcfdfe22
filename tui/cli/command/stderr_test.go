package command

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tap is what lines are written to: it takes nothing while it is shut.
type tap struct {
	mu   sync.Mutex // guards text, slow and n
	text bytes.Buffer
	slow time.Duration // that each line takes
	n    int
	shut chan struct{} // nil = open
}

func (w *tap) Write(p []byte) (int, error) {
	if w.shut != nil {
		<-w.shut
	}
	time.Sleep(w.slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	return w.text.Write(p)
}

func (w *tap) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestLinesAreWrittenAtOnce: as long as the reader reads, a line is out before its writer
// goes on, and none is lost at the end.
func TestLinesAreWrittenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &tap{}
		errs := &stderr{w: w}
		errs.writeInBackground(NewLogger(&Flags{}, w, false))
		began := time.Now()
		line := []byte("first\n")
		fmt.Fprintf(errs, "%s", line)
		copy(line, "other")
		if w.String() != "first\n" {
			t.Errorf("it has %q", w)
		}
		w.slow = 20 * time.Millisecond
		for i := range 10 {
			fmt.Fprintln(errs, i)
		}
		if took := time.Since(began); took != 200*time.Millisecond || w.n != 11 {
			t.Errorf("%d lines after %s", w.n, took)
		}
		w.slow = 100 * time.Millisecond
		for i := range 10 {
			fmt.Fprintln(errs, "slow", i)
		}
		errs.end()
		if w.n != 21 || !strings.HasSuffix(w.String(), "slow 8\nslow 9\n") || strings.Contains(w.String(), "lost") {
			t.Errorf("%d lines: %q", w.n, w)
		}
		began = time.Now()
		fmt.Fprintln(errs, "late")
		if took := time.Since(began); took > lineTimeout {
			t.Errorf("a line after the end takes %s", took)
		}
	})
}

// TestLinesStopNobody: a reader that reads nothing. What waits is bounded, the number of
// lost lines follows it, and the process ends.
func TestLinesStopNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &tap{shut: make(chan struct{})}
		errs := &stderr{w: w}
		errs.writeInBackground(NewLogger(&Flags{}, w, false))
		began := time.Now()
		const many = 5000
		for i := range many {
			fmt.Fprintf(errs, "%d\n", i)
		}
		if took := time.Since(began); took != lineTimeout {
			t.Errorf("who logs was held up for %s", took)
		}
		close(w.shut)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(w.String()), "\n")
		if kept := maxQueued + 1; len(lines) != kept+1 || lines[kept-1] != fmt.Sprint(kept-1) ||
			lines[kept] != fmt.Sprintf("limpet: error: log lines are lost: they were not read for too long (lines %d)", many-kept) {
			t.Errorf("%d lines, the last are %q", len(lines), lines[len(lines)-2:])
		}
		w.shut = nil
		at := time.Now()
		fmt.Fprintln(errs, "again")
		if !strings.HasSuffix(w.String(), "again\n") || time.Since(at) != 0 || strings.Count(w.String(), "lost") != 1 {
			t.Errorf("after it is taken again: %q", w.String()[len(w.String())-100:])
		}
		errs.end()

		w = &tap{shut: make(chan struct{})}
		errs = &stderr{w: w}
		errs.writeInBackground(NewLogger(&Flags{}, w, false))
		fmt.Fprintln(errs, "last")
		at = time.Now()
		errs.end()
		if took := time.Since(at); took != flushTimeout {
			t.Errorf("the end waits for %s", took)
		}
		close(w.shut)
	})
}
