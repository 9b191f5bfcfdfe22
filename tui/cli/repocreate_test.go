package cli

import (
	"strings"
	"testing"

	"limpet/tui/cli/command"
)

// TestCreateOfALocalRepository: what has to be there for it is said at once, where
// nothing tells of an agent that has it.
func TestCreateOfALocalRepository(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		url, flag string
		says      bool
	}{{"file:///srv/git/a.git", "", true}, {"file:///srv/git/a.git", "--local-git-prefix=/srv/git", false},
		{"https://git.example.com/a.git", "", false}} {
		s := newSite(t)
		args := []string{"repo", "create", "a", "--url", tt.url}
		if tt.flag != "" {
			args = append(args, tt.flag)
		}
		_, errs := s.Must(t, command.ExitOK, args...)
		if strings.Contains(errs, "--local-git-prefix") != tt.says {
			t.Errorf("%s %s: %s", tt.url, tt.flag, errs)
		}
	}
}
