package widget

import (
	"fmt"
	"strings"
	"time"

	"limpet/sync/text"
)

// Clock is an elapsed time in at most six cells: 0:42, 12:03, 1h02m, 4d03h.
func Clock(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h >= 100:
		return fmt.Sprintf("%dd%02dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}

// DayTime is a moment in a list that goes back for days.
func DayTime(t, now time.Time) string {
	t = t.UTC()
	if t.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("01-02 15:04")
}

// Ago is the age of t, "-" when t is not known.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return text.Age(now.Sub(t)) + " ago"
}

// ClockTime is a moment in the short form, with its date when that is another.
func ClockTime(t, now time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	t = t.UTC()
	if t.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return t.Format("15:04:05Z")
	}
	return t.Format("2006-01-02 15:04Z")
}

// SecondsText is a time that a job took.
func SecondsText(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Second/10:
		return "<0.1s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return Clock(d)
}

// Thousands is a count with its noun: "1 file", "1,204 files".
func Thousands(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return text.Thousands(int(n)) + " " + noun + "s"
}

func TimesText(n int) string {
	if n == 1 {
		return "once"
	}
	return text.Thousands(n) + " times"
}

// LongOrShort is the long form of a text where there is room for it and an age.
func LongOrShort(w int, long, short string) string {
	if w >= len(long)+3 {
		return long
	}
	return short
}

// Quote makes a name one word of a shell. Names of the API need no quotes; what
// came from elsewhere may.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@%+=,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 && word[0] != '-' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Quoted is a text that is clean already, as somebody's words.
func Quoted(txt string) string { return `"` + txt + `"` }
