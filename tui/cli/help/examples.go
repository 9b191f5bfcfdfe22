package help

import (
	_ "embed"
	"strings"
)

//go:embed examples.txt
var examples string

// Examples returns the example calls of a command, such as "repo create"; none for a command without any.
func Examples(command string) []string {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(examples), "\n\n") {
		if name, calls, ok := strings.Cut(paragraph, "\n"); ok && name == command {
			return strings.Split(calls, "\n")
		}
	}
	return nil
}
