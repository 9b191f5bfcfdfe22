package cli_test

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestDashboardTestsAndShowsAnObject: t asks the daemon, which has the credentials, for
// a test against the real Git host; y shows what the API has, and copies it.
func TestDashboardTestsAndShowsAnObject(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, 1)
	s.must(t, 0, "repo", "pull", "boards", "--wait")
	tt := s.terminal(t)
	tt.shows(t, "attached to daemon")
	tt.press(t, "3")
	tt.shows(t, "1 in order")
	tt.press(t, "t")
	tt.shows(t, "Test boards")
	for _, step := range []string{"ok rules", "ok credentials", "ok remote", "ok branch"} {
		tt.shows(t, step)
	}
	tt.press(t, "qy")
	tt.shows(t, "apiVersion: provisioning.grafana.app/")
	tt.shows(t, "name: boards")
	tt.press(t, "y")
	const clipboard = "\x1b]52;c;"
	tt.shows(t, clipboard)
	tt.shows(t, "YAML")
	_, sent, _ := strings.Cut(tt.screen.String(), clipboard)
	sent, _, _ = strings.Cut(sent, "\a")
	text, err := base64.StdEncoding.DecodeString(sent)
	if out := s.must(t, 0, "get", "repository", "boards", "-o", "yaml"); err != nil || string(text) != out.out {
		t.Errorf("copied %q, %v; limpet get prints %q", text, err, out.out)
	}
	s.file(t, "credentials/default.boards/token", "another")
	tt.press(t, "qt")
	tt.shows(t, "failed remote")
	tt.press(t, "q4")
	tt.shows(t, "newest first")
	tt.press(t, "y")
	tt.shows(t, "finished:")
	tt.press(t, "qq")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
	if strings.Contains(tt.screen.String(), gitToken) {
		t.Error("the token is on the screen")
	}
}
