package command

import (
	"strings"

	"limpet/state"
	"limpet/sync/text"
)

// RedactText removes secrets from a text that another program has written to a job. Only texts with a URL are
// examined: that is where they occur, and lists are long.
func RedactText(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return text.Redact(s)
}

// RedactRecord redacts the texts of a record.
func RedactRecord(rec *state.Record) {
	rec.Message = RedactText(rec.Message)
	for i := range rec.Attempts {
		rec.Attempts[i].Message = RedactText(rec.Attempts[i].Message)
	}
	if rec.DeadLetter != nil {
		rec.DeadLetter.LastError = RedactText(rec.DeadLetter.LastError)
	}
}
