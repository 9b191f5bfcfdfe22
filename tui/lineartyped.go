package tui

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/muesli/cancelreader"
)

// lineMost bounds a typed line, in bytes; the rest of a longer one is dropped.
const lineMost = 4 << 10

// typedLines are the lines of an input. A line is read once somebody asks for it and no
// earlier: what comes after may be for the next reader, as after the word setup on a
// pipe.
type typedLines struct {
	lines chan string
	ask   chan struct{}
	asked bool // a line is asked for, and was not taken yet
	stop  func()
}

// readTyped begins to read. Stop ends it, and waits for the reader.
func readTyped(in *os.File) *typedLines {
	var from io.Reader = in
	end, free := func() {}, func() {}
	if c, err := cancelreader.NewReader(in); err == nil { // else it is a file, which nobody waits for
		from, end, free = c, func() { c.Cancel() }, func() { c.Close() }
	}
	t := &typedLines{lines: make(chan string), ask: make(chan struct{}, 1)}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer close(t.lines)
		for {
			select {
			case <-t.ask:
			case <-over:
				return
			}
			line, err := readLine(from)
			if line != "" || err == nil {
				select {
				case t.lines <- line:
				case <-over:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	t.stop = sync.OnceFunc(func() {
		close(over)
		end()
		<-done
		free()
	})
	return t
}

// next is where the next line comes from, which is closed at the end of the input.
// Who has received from it says so with took.
func (t *typedLines) next() <-chan string {
	if !t.asked {
		t.asked = true
		select {
		case t.ask <- struct{}{}:
		default: // the input has ended
		}
	}
	return t.lines
}

func (t *typedLines) took() { t.asked = false }

// readLine reads up to the next line break, byte by byte.
func readLine(from io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for {
		switch n, err := from.Read(b[:]); {
		case n > 0 && b[0] == '\n':
			return string(line), nil
		case n > 0:
			if len(line) < lineMost {
				line = append(line, b[0])
			}
		case errors.Is(err, cancelreader.ErrCanceled):
			return "", err
		case err != nil:
			return string(line), err
		}
	}
}
