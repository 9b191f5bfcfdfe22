package snapshot

import (
	"slices"
	"strings"
	"time"
)

// Selects says that q selects a row as the history does it. The commit is not looked at:
// a row does not have all that it is compared with.
func (q HistoryQuery) Selects(r HistoryRow) bool {
	at := millis(r.Finished)
	return (q.Namespace == "" || q.Namespace == r.Namespace) &&
		(q.Repository == "" || q.Repository == r.Repository) &&
		(q.Action == "" || q.Action == r.Action) &&
		(len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		(q.Since.IsZero() || at >= millis(q.Since)) && (q.Until.IsZero() || at < millis(q.Until)) &&
		q.hasWords(r)
}

// millis is a moment as the history orders it.
func millis(t time.Time) int64 { return max(t.UnixMilli(), 0) }

// hasWords looks for the words.
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

// Covers says that q selects every row that narrow does: those of narrow are among
// those of q. False says nothing.
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
