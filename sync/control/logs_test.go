package control

import (
	"bytes"
	"fmt"
	"testing"
)

// TestLogIsBounded: the oldest lines go, and a reader goes on behind the last line that it has.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	var l Log
	for n := range maxLogLines + 10 {
		fmt.Fprintf(&l, "line %d\n", n)
	}
	text, next, more := l.after(0)
	if n := bytes.Count(text, []byte("\n")); n != maxLogLines || next != maxLogLines+10 || !bytes.HasPrefix(text, []byte("line 10\n")) {
		t.Errorf("%d lines, next %d, %.20s", n, next, text)
	}
	if text, _, _ := l.after(next); len(text) > 0 {
		t.Errorf("nothing is new: %q", text)
	}
	fmt.Fprintln(&l, "last")
	<-more
	if text, _, _ := l.after(next); string(text) != "last\n" {
		t.Errorf("%q", text)
	}
	large := bytes.Repeat([]byte{'x'}, maxLogBytes/2)
	for range 3 {
		if _, err := l.Write(large); err != nil {
			t.Fatal(err)
		}
	}
	if text, _, _ := l.after(0); len(text) != maxLogBytes/2*2 {
		t.Errorf("%d bytes", len(text))
	}
}
