package cli_test

import (
	"path"
	"strings"
	"testing"

	"limpet/sync/testenv"
)

// TestDashboardShowsWhatAPullHasChanged: from the history to the job, its files and
// one of them old against new, out of the mirror of a real Git repository, attached
// to a daemon.
func TestDashboardShowsWhatAPullHasChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, 2)
	s.must(t, 0, "repo", "pull", "boards", "--full", "--wait")
	file := s.repo.Dashboards()[1].Path
	s.repo.Commit(t, "a new title", testenv.Change{Path: file, Data: []byte(`{"schemaVersion": 39, "tags": [], "panels": [], "uid": "other", "title": "Quokka-in-Git"}`)})
	s.must(t, 0, "repo", "pull", "boards", "--wait")
	tt := s.terminal(t)
	tt.shows(t, "attached to daemon")
	tt.press(t, "4")
	tt.shows(t, "newest first")
	tt.shows(t, "2 jobs")
	tt.press(t, "\r")
	tt.shows(t, "attempt 1")
	tt.press(t, "d")
	tt.shows(t, "Changes of")
	tt.shows(t, "modified")
	tt.shows(t, path.Base(file))
	tt.press(t, "\r")
	tt.shows(t, "as JSON, keys sorted")
	tt.press(t, "/quokka\r")
	tt.shows(t, "Quokka-in-Git")
	if strings.Contains(tt.screen.String(), "It cannot be told") {
		t.Error("it was not told at first")
	}
	tt.press(t, "q")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
}
