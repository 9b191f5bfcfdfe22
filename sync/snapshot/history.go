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
	Subject    string // of the commit; "" = not known
	Attempts   int
	Result     JobResult
}

// JobResult is what a job came to, in numbers. Zero = not known.
type JobResult struct {
	Errors, Warnings          int
	Only                      string // the error or warning, where there is one
	Created, Updated, Deleted int64
	Counted                   bool // these three are known
}

// HistoryQuery selects rows of the history. Empty members select all.
type HistoryQuery struct {
	Namespace  string
	Repository string
	Action     string
	States     []string
	Since      time.Time // finished at or after
	Until      time.Time // finished before
	Ref        string    // how the commit begins
	Words      []string  // each occurs somewhere in the row
	Limit      int       // rows of a page
	After      string    // Next of the page before
}

// ExpandStates are the states of rows that a person means with those words: a job that is
// dead has ended as an error, and is one everywhere else.
func ExpandStates(words []string) []string {
	if slices.Contains(words, "error") && !slices.Contains(words, "dead") {
		return append(slices.Clone(words), "dead")
	}
	return words
}

// HistoryPage is a piece of the history, the newest first.
type HistoryPage struct {
	Rows []HistoryRow
	Next string // where the next page goes on; "" = there is none
	All  int    // how many jobs the history has altogether
}
