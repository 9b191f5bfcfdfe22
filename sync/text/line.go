package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s on one line, without hidden runes, cut to max bytes. Line breaks and
// tabs become blanks, runs of blanks one blank.
func Line(s string, max int) string {
	var b strings.Builder
	blank := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			blank = b.Len() > 0
			continue
		case Hidden(r):
			continue
		}
		gap := 0
		if blank {
			gap = 1
		}
		if b.Len()+gap+utf8.RuneLen(r) > max {
			b.WriteString("…")
			break
		}
		if blank = false; gap > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}
