package snapshot

import (
	"slices"

	"limpet/state"
)

// HistoryRow is one row of the history, as in the answer to a brief query.
type HistoryRow = state.Record

// HistoryQuery selects rows of the history.
type HistoryQuery = state.Query

// HistoryPage is one page of the history, newest first.
type HistoryPage struct {
	Rows []HistoryRow
	Next string // Before of the query for the next page; "" = last page
	All  int    // number of records in the history
}

// ExpandStates returns the states that the words of a person select: "error" includes dead jobs, because they ended
// with an error.
func ExpandStates(words []string) []string {
	if slices.Contains(words, "error") && !slices.Contains(words, "dead") {
		return append(slices.Clone(words), "dead")
	}
	return words
}
