package snapshot

import (
	"slices"
	"time"
)

// HistoryRow is one row of the history.
type HistoryRow struct {
	UID        string
	Namespace  string
	Name       string
	Repository string
	Action     string
	State      string
	Message    string
	Agent      string
	Started    time.Time
	Finished   time.Time
	RefTo      string
	Subject    string // of the commit; "" = unknown
	Attempts   int
	Result     JobResult
}

// JobResult is the result of a job in numbers. Zero means unknown.
type JobResult struct {
	Errors, Warnings          int
	Only                      string // the error or warning, when there is exactly one
	Created, Updated, Deleted int64
	Counted                   bool // Created, Updated and Deleted are known
}

// HistoryQuery selects rows of the history. Empty fields select everything.
type HistoryQuery struct {
	Namespace  string
	Repository string
	Action     string
	States     []string
	Since      time.Time // finished at or after
	Until      time.Time // finished before
	Ref        string    // prefix of the commit
	Words      []string  // each occurs somewhere in the row
	Limit      int       // rows of a page
	After      string    // Next of the previous page
}

// ExpandStates returns the states that the words of a person select: "error" includes
// dead jobs, because they ended with an error.
func ExpandStates(words []string) []string {
	if slices.Contains(words, "error") && !slices.Contains(words, "dead") {
		return append(slices.Clone(words), "dead")
	}
	return words
}

// HistoryPage is one page of the history, newest first.
type HistoryPage struct {
	Rows []HistoryRow
	Next string // cursor of the next page; "" = last page
	All  int    // number of records in the history
}
