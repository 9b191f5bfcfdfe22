package snapshot

import (
	"slices"
	"strings"
	"time"
)

// Selects reports whether q selects a row, as the history does. It ignores Ref,
// because a row lacks some of the commits that Ref is compared with.
func (q HistoryQuery) Selects(r HistoryRow) bool {
	at := millis(r.Finished)
	return (q.Namespace == "" || q.Namespace == r.Namespace) &&
		(q.Repository == "" || q.Repository == r.Repository) &&
		(q.Action == "" || q.Action == r.Action) &&
		(len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		(q.Since.IsZero() || at >= millis(q.Since)) && (q.Until.IsZero() || at < millis(q.Until)) &&
		q.hasWords(r)
}

// millis returns the time that the history is sorted by.
func millis(t time.Time) int64 { return max(t.UnixMilli(), 0) }

// hasWords reports whether the row contains all words.
func (q HistoryQuery) hasWords(r HistoryRow) bool {
	if len(q.Words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join([]string{r.Name, r.Repository, r.Action, r.State, r.Message, r.Subject}, "\n"))
	for _, w := range q.Words {
		if !strings.Contains(text, strings.ToLower(w)) {
			return false
		}
	}
	return true
}

// Covers reports whether q certainly selects every row that narrow selects.
func (q HistoryQuery) Covers(narrow HistoryQuery) bool {
	return (q.Namespace == "" || q.Namespace == narrow.Namespace) &&
		(q.Repository == "" || q.Repository == narrow.Repository) &&
		(q.Action == "" || q.Action == narrow.Action) &&
		(len(q.States) == 0 || len(narrow.States) > 0 && !slices.ContainsFunc(narrow.States, func(s string) bool { return !slices.Contains(q.States, s) })) &&
		(q.Since.IsZero() || !narrow.Since.Before(q.Since)) &&
		(q.Until.IsZero() || !narrow.Until.IsZero() && !narrow.Until.After(q.Until)) &&
		q.Ref == narrow.Ref &&
		!slices.ContainsFunc(q.Words, func(w string) bool {
			return !slices.ContainsFunc(narrow.Words, func(n string) bool { return strings.Contains(strings.ToLower(n), strings.ToLower(w)) })
		})
}
