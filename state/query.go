package state

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"limpet/state/frame"
)

// Query selects records of the history; zero fields select everything.
type Query struct {
	UID        string
	Repository string
	Namespace  string
	Outside    string // a namespace that none is of
	Action     string
	States     []string
	Since      time.Time // finished at or after
	Until      time.Time // finished before
	Ref        string    // how RefTo or RefFrom begins
	Words      []string  // each occurs in the name, repository, action, state, message or subject of the commit, in any case
	Brief      bool      // with Tally, but without Spec, Status, Labels, Steps and Issues, which are most of a record
	Limit      int       // at most that many records; 0 = all
	Before     string    // Record.Cursor of the last record of the page before
}

func (q Query) matches(r Record) bool {
	return (q.UID == "" || q.UID == r.UID) &&
		(q.Repository == "" || q.Repository == r.Repository) &&
		(q.Namespace == "" || q.Namespace == r.Namespace) &&
		(q.Outside == "" || q.Outside != r.Namespace) &&
		(q.Action == "" || q.Action == r.Action) &&
		(len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		(q.Ref == "" || strings.HasPrefix(r.RefTo, q.Ref) || strings.HasPrefix(r.RefFrom, q.Ref)) &&
		q.matchesWords(r)
}

// matchesWords reports whether every word occurs in the record.
func (q Query) matchesWords(r Record) bool {
	if len(q.Words) == 0 {
		return true
	}
	subject := ""
	if r.Commit != nil {
		subject = r.Commit.Subject
	}
	text := strings.ToLower(strings.Join([]string{r.Name, r.Repository, r.Action, r.State, r.Message, subject}, "\n"))
	for _, w := range q.Words {
		if !strings.Contains(text, strings.ToLower(w)) {
			return false
		}
	}
	return true
}

// add appends a record that matches.
func (q Query) add(out []Record, r Record) []Record {
	if q.Brief {
		r.Tally = totalsOf(r.Status)
		r.Spec, r.Status, r.Labels, r.Steps, r.Issues = nil, nil, nil, nil, nil
	}
	return append(out, r)
}

// History returns the selected records, newest first.
func (s *Store) History(ctx context.Context, q Query) ([]Record, error) {
	low, high, err := q.bounds()
	if err != nil {
		return nil, err
	}
	return read(ctx, s, func(v view) (out []Record, err error) {
		if q.UID != "" {
			r, key, ok, err := v.record(q.UID)
			if ok && bytes.Compare(key, low) >= 0 && (high == nil || bytes.Compare(key, high) < 0) && q.matches(r) {
				out = q.add(out, r)
			}
			return out, err
		}
		err = v.scanBack(ctx, frame.History, low, high, func(_ []byte, f frame.Frame) (bool, error) {
			var r Record
			if err := decodeJSON(f, &r); err != nil {
				return false, err
			}
			if q.matches(r) {
				out = q.add(out, r)
			}
			return q.Limit <= 0 || len(out) < q.Limit, nil
		})
		return out, err
	})
}

// bounds returns the keys between which the query reads: low included, high (nil = the end) not.
func (q Query) bounds() (low, high []byte, err error) {
	if !q.Since.IsZero() {
		low = recordKey(q.Since, "")
	}
	if !q.Until.IsZero() {
		high = recordKey(q.Until, "")
	}
	if q.Before != "" {
		cursor, err := hex.DecodeString(q.Before)
		if err != nil || len(cursor) <= 8 {
			return nil, nil, fmt.Errorf("read history: %q is not a cursor", q.Before)
		}
		if high == nil || bytes.Compare(cursor, high) < 0 {
			high = cursor
		}
	}
	return low, high, nil
}

// Totals summarizes the Status of a record for one row of a list.
type Totals struct {
	Create   int64  `json:"create,omitempty"`
	Update   int64  `json:"update,omitempty"`
	Delete   int64  `json:"delete,omitempty"`
	Counted  bool   `json:"counted,omitempty"` // the three are known
	Errors   int    `json:"errorCount,omitempty"`
	Warnings int    `json:"warningCount,omitempty"`
	Only     string `json:"only,omitempty"` // the error or warning, where there is one; of a long one the beginning
}

// maxOnly bounds Only, in bytes: a row is a line of a terminal, a long path and a reason.
const maxOnly = 400

// totalsOf sums up a job status; nil when it has no counts.
func totalsOf(status []byte) *Totals {
	var s struct {
		Summary []struct {
			Totals         // of which it has the first three
			Error, Warning int
		}
		Errors, Warnings []string
	}
	if len(status) == 0 || json.Unmarshal(status, &s) != nil {
		return nil
	}
	errors, warnings := 0, 0
	t := Totals{Counted: len(s.Summary) > 0, Errors: len(s.Errors), Warnings: len(s.Warnings)}
	for _, k := range s.Summary {
		t.Create, t.Update, t.Delete = t.Create+k.Create, t.Update+k.Update, t.Delete+k.Delete
		errors, warnings = errors+k.Error, warnings+k.Warning
	}
	t.Errors, t.Warnings = max(t.Errors, errors), max(t.Warnings, warnings) // the lists have the first ones
	if all := append(s.Errors, s.Warnings...); len(all) == 1 {
		t.Only = all[0]
		if len(t.Only) > maxOnly {
			t.Only = strings.ToValidUTF8(t.Only[:maxOnly], "")
		}
	}
	if !t.Counted && t.Errors+t.Warnings == 0 {
		return nil
	}
	return &t
}
