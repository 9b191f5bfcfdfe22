package cli

import (
	"strings"

	"limpet/state"
	"limpet/sync/text"
)

// maskText takes secrets out of a text that somebody else wrote. Agents write none, but
// a history may hold what another program has written to a job. Only a text with a
// URL is looked at: that is where they come from, and lists are long.
func maskText(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return text.Redact(s)
}

// maskRecord does so with what a record tells in words.
func maskRecord(rec *state.Record) {
	rec.Message = maskText(rec.Message)
	for i := range rec.Attempts {
		rec.Attempts[i].Message = maskText(rec.Attempts[i].Message)
	}
	if rec.DeadLetter != nil {
		rec.DeadLetter.LastError = maskText(rec.DeadLetter.LastError)
	}
}
