package history

import (
	"strings"
	"testing"
	"time"

	"limpet/tui/cli/clitest"
)

// TestDeadAreNoted: who asks for what has failed is told of the jobs that failed to the
// last attempt too, where there are any.
func TestDeadAreNoted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Record(t, clitest.Record("u1", "default", "boards", "success", time.Hour), clitest.Record("u2", "default", "boards", "error",
		2*time.Hour), clitest.Record("u3", "default", "boards", "dead", 3*time.Hour))
	for flags, want := range map[string]string{
		"--status error":               "u2 +",
		"--status success,error":       "u1 u2 +",
		"--status error -q":            "u2",
		"--status error --dead":        "u2 u3",
		"--status dead":                "u3",
		"--dead":                       "u3",
		"--status success":             "u1",
		"":                             "u1 u2 u3",
		"--status error -r elsewhere":  "",
		"--status error --limit 1":     "u2 +",
		"--status error --action push": "",
	} {
		out, errs := s.Must(t, 0, strings.Fields("history list -o jsonl --json uid "+flags)...)
		var got []string
		for _, id := range []string{"u1", "u2", "u3"} {
			if strings.Contains(out, id) {
				got = append(got, id)
			}
		}
		if strings.HasSuffix(errs, ": limpet history list --dead\n") {
			got = append(got, "+")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q; %s", flags, got, want, errs)
		}
	}
}
