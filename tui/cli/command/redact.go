package command

import (
	"strings"

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
