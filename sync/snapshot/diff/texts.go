// Package diff tells how one file becomes another, for a person who reads it on
// a terminal. Everything is bounded, because the files come from anywhere.
package diff

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

const (
	// context is how many lines that did not change stand around a change, as in git.
	context = 3
	// mostLines bounds what is shown of a file, and mostLine one line of it in bytes.
	mostLines = 4000
	mostLine  = 1000
	// mostRead bounds the lines of a file that are compared.
	mostRead = 100_000
)

// Texts compares two contents; nil is a file that was not there. JSON is compared by
// what it says: keys sorted, a member on a line.
func Texts(before, after []byte) snapshot.TextChange {
	if binary(before) || binary(after) {
		return snapshot.TextChange{Form: fmt.Sprintf("not text: %s became %s", text.Size(int64(len(before))), text.Size(int64(len(after))))}
	}
	form := "as JSON, keys sorted"
	a, b, ok := bothJSON(before, after)
	if !ok {
		form, a, b = "as text", split(before), split(after)
	}
	if len(a) > mostRead || len(b) > mostRead {
		return snapshot.TextChange{Form: fmt.Sprintf("not compared: more than %s lines", text.Thousands(mostRead))}
	}
	script, whole := edits(a, b)
	if !whole {
		form += ", too different to compare line by line"
	}
	out := pieces(a, b, script)
	out.Form = form
	switch {
	case out.Added+out.Deleted > 0:
	case before == nil || after == nil:
		out.Form = "the file is empty"
	case ok && !bytes.Equal(before, after):
		out.Form = "only the form differs: the same JSON, written another way"
	default:
		out.Form = "the content is the same"
	}
	return out
}

func binary(data []byte) bool {
	return bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data)
}

// split takes a text apart. A last line without its end says so, as in git.
func split(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	txt, ended := strings.CutSuffix(string(data), "\n")
	lines := strings.Split(txt, "\n")
	if !ended {
		lines[len(lines)-1] += " (no end of line)"
	}
	return lines
}

// pieces shows the edits, each with what stands around it; near ones are one piece.
func pieces(a, b []string, script []edit) (out snapshot.TextChange) {
	add := func(op, txt string) {
		if len(out.Lines) >= mostLines {
			out.More++
			return
		}
		out.Lines = append(out.Lines, snapshot.TextLine{Op: op, Text: short(txt)})
	}
	for i := 0; i < len(script); {
		n := i + 1 // of the first edit that is in another piece
		for n < len(script) && script[n].a-script[n-1].endA <= 2*context {
			n++
		}
		first, last := script[i], script[n-1]
		lead := min(first.a, context)
		tail := min(len(a)-last.endA, context)
		fromA, fromB := first.a-lead, first.b-lead
		add("@", fmt.Sprintf("@@ -%s +%s @@", span(fromA, last.endA+tail), span(fromB, last.endB+tail)))
		at := fromA
		for _, e := range script[i:n] {
			for ; at < e.a; at++ {
				add(" ", a[at])
			}
			for ; at < e.endA; at++ {
				add("-", a[at])
			}
			for k := e.b; k < e.endB; k++ {
				add("+", b[k])
			}
			out.Deleted += e.endA - e.a
			out.Added += e.endB - e.b
		}
		for ; at < last.endA+tail; at++ {
			add(" ", a[at])
		}
		i = n
	}
	return out
}

// span is a range of lines in the form of git: counted from 1, empty ones by the
// line before them.
func span(from, end int) string {
	if from == end {
		return fmt.Sprintf("%d,0", from)
	}
	return fmt.Sprintf("%d,%d", from+1, end-from)
}

func short(txt string) string {
	if len(txt) <= mostLine {
		return txt
	}
	end := mostLine
	for !utf8.RuneStart(txt[end]) {
		end--
	}
	return fmt.Sprintf("%s (and %s bytes)", txt[:end], text.Thousands(len(txt)-end))
}
