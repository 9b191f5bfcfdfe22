package state

import (
	"encoding/json"
	"strings"
)

// Tally is what a job came to, as the Status of its record tells it: so much of it a row
// of a list has room for.
type Tally struct {
	Create   int64  `json:"create,omitempty"`
	Update   int64  `json:"update,omitempty"`
	Delete   int64  `json:"delete,omitempty"`
	Counted  bool   `json:"counted,omitempty"` // the three are known
	Errors   int    `json:"errorCount,omitempty"`
	Warnings int    `json:"warningCount,omitempty"`
	Only     string `json:"only,omitempty"` // the error or warning, where there is one; of a long one the beginning
}

// onlyMost bounds Only, in bytes: a row is a line of a terminal, a long path and a reason.
const onlyMost = 400

// tallyOf counts. nil = the status tells nothing.
func tallyOf(status []byte) *Tally {
	var s struct {
		Summary          []Tally // of which it has the first three
		Errors, Warnings []string
	}
	if len(status) == 0 || json.Unmarshal(status, &s) != nil {
		return nil
	}
	t := Tally{Counted: len(s.Summary) > 0, Errors: len(s.Errors), Warnings: len(s.Warnings)}
	for _, k := range s.Summary {
		t.Create, t.Update, t.Delete = t.Create+k.Create, t.Update+k.Update, t.Delete+k.Delete
	}
	if all := append(s.Errors, s.Warnings...); len(all) == 1 {
		t.Only = all[0]
		if len(t.Only) > onlyMost {
			t.Only = strings.ToValidUTF8(t.Only[:onlyMost], "")
		}
	}
	if !t.Counted && t.Errors+t.Warnings == 0 {
		return nil
	}
	return &t
}
