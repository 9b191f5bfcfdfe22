package command

import (
	"strings"

	"limpet/state"
	"limpet/sync/text"
)

// RedactText takes secrets out of a text that somebody else wrote. Agents write none, but
// a history may hold what another program has written to a job. Only a text with a
// URL is looked at: that is where they come from, and lists are long.
func RedactText(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return text.Redact(s)
}

// RedactRecord does so with what a record tells in words.
func RedactRecord(rec *state.Record) {
	rec.Message = RedactText(rec.Message)
	for i := range rec.Attempts {
		rec.Attempts[i].Message = RedactText(rec.Attempts[i].Message)
	}
	if rec.DeadLetter != nil {
		rec.DeadLetter.LastError = RedactText(rec.DeadLetter.LastError)
	}
}
