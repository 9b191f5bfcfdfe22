package widget

import (
	"slices"
	"strings"
	"time"

	"limpet/sync/text"
)

// DayTime formats a time in a list that spans days.
func DayTime(t, now time.Time) string {
	t = t.UTC()
	if t.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("01-02 15:04")
}

// Ago formats the age of t, "-" when t is zero.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return text.Age(now.Sub(t)) + " ago"
}

// ClockTime formats a time in the short form, with the date when it is not today.
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

// When returns text if a condition holds, else "".
func When(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

// Join joins the texts that are not empty.
func Join(sep string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), sep)
}

// Thousands formats a count with its noun: "1 file", "1,204 files".
func Thousands(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return text.Thousands(int(n)) + " " + noun + "s"
}
