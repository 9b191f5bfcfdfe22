// Package text formats text for people: terminal-safe strings, ages, sizes, and the nearest known
// name.
package text

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Hidden reports whether a rune controls a terminal or misleads readers: controls (C0, DEL, C1),
// direction marks, line and paragraph separators, zero-width blanks, tags, the byte order mark, and
// invalid UTF-8. The two joiners are not hidden, because scripts need them.
func Hidden(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError ||
		r == 0x200b || r == 0x200e || r == 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f ||
		r == 0x061c || r == 0xfeff || r >= 0xfff9 && r <= 0xfffb || r >= 0xe0000 && r <= 0xe007f
}

// Clean makes foreign text safe to show on one line: it removes hidden runes and turns line breaks
// and tabs into blanks. Names and messages come from Git and from the API, and must not move the
// cursor of a terminal. It removes joiners, emoji selectors and skin tones too, because terminals
// do not agree on the width of what they join.
func Clean(s string) string {
	safe := true
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] >= 0x7f {
			safe = false
			break
		}
	}
	if safe {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case Hidden(r), r == 0x200c, r == 0x200d, r == 0xfe0f, r >= 0x1f3fb && r <= 0x1f3ff:
			return -1
		}
		return r
	}, s)
}

// Age formats a time span in its largest unit: 42s, 5m, 3h, 2d. A negative one is 0s.
func Age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Took formats a duration in at most six cells: 41ms, 1.6s, 22s, 12:03, 1h02m, 4d03h.
func Took(d time.Duration) string {
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(time.Second/10).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", s)
	case h >= 100:
		return fmt.Sprintf("%dd%02dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}

// Size formats a number of bytes in its largest unit: 512 B, 1.0 MiB, 61 MiB.
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB"} {
		if v >= 1<<10 {
			v, unit = v/(1<<10), next
		}
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

// ShortRef cuts a commit to seven digits; other text stays as it is.
func ShortRef(ref string) string {
	if len(ref) >= 40 && strings.Trim(ref, "0123456789abcdefABCDEF") == "" {
		return ref[:7]
	}
	return ref
}

// OrDash returns s, or "-" when it is empty, so that a column is never blank.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Plural formats a count with its noun: "1 record", "3 records".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Thousands formats a number with a comma after each three digits: 41,288.
func Thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return Thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// plainWord matches words that no shell changes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// ShellWord quotes a word for a shell. Names of the API need no quotes; other names may.
func ShellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Words splits a line into words as a shell does, with quotes and backslashes and without any
// expansion.
func Words(line string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			begun, escaped = true, true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			begun, quote = true, r
		case quote == 0 && unicode.IsSpace(r):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

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

// Clip makes s valid UTF-8 of at most max bytes; what is cut off is marked.
func Clip(s string, max int) string {
	if len(s) > 4*max { // what is cut off need not be looked at
		s = s[:4*max]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= max {
		return s
	}
	cut := max - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// maxWord bounds the input: the work grows with the product of both lengths.
const maxWord = 100 // bytes

// Nearest returns the candidate that a mistyped word means: one with word as its prefix, else the
// most similar one within an edit distance of a third of its length. "" means none.
func Nearest(word string, candidates []string) string {
	best, least := "", len(word)/3+1
	for _, c := range candidates {
		if len(word) >= 3 && strings.HasPrefix(c, word) {
			return c
		}
		if d := Distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance returns the edit distance of two words in bytes, with transpositions, for
// "did you mean". A word longer than maxWord is similar to none.
func Distance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return max(len(a), len(b))
	}
	// The rows of the table for the byte before the last, the last, and this one.
	two, one, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		two, one, row = one, row, two
		row[0] = i + 1
		for j := range len(b) {
			cost := one[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, one[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], two[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// UTF8 reports whether the locale of an environment is UTF-8, so that its terminal
// shows more than ASCII. The first non-empty variable decides.
func UTF8(env func(string) string) bool {
	locale := env("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = env(name)
		}
	}
	locale = strings.ToUpper(locale)
	return strings.Contains(locale, "UTF-8") || strings.Contains(locale, "UTF8")
}

// localPort is the local end of a connection in an error. It changes with each attempt: "read udp
// 10.0.0.2:50312->10.0.0.1:53: i/o timeout" would otherwise be a new error each time.
var localPort = regexp.MustCompile(`[0-9a-f.:\[\]]+:\d+->(\S)`)

// WithoutLocalPorts makes the text of an error the same for each attempt.
func WithoutLocalPorts(txt string) string { return localPort.ReplaceAllString(txt, "$1") }
