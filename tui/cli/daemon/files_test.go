package daemon

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/agent"
	"limpet/sync/git"
	"limpet/sync/snapshot"
	"limpet/tui/cli/command"
)

// TestRepoFiles: each file of the synced commit is listed with what became of it.
func TestRepoFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := filepath.Join(s.Dir, "git", "a.git")
	err := git.CreateRepository(dir)
	if err == nil {
		_, err = git.CommitFiles(dir, "main", "first", map[string][]byte{
			"net/core.json": []byte(`{"uid":"core","title":"Core","tags":[],"schemaVersion":41,"panels":[]}`),
			"net/bad.json":  []byte("{"), "README.md": []byte("#"), ".hidden.json": []byte("{}")}, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	var out string
	read := func(t *testing.T) {
		t.Helper()
		out, _ = s.Must(t, 0, "repo", "files", "a", "-o", "json")
		text, _ := s.Must(t, 0, "repo", "files", "a", "net/core.json")
		if want := "{\n  \"panels\": [],\n  \"schemaVersion\": 41,\n"; !strings.HasPrefix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
		s.Must(t, command.ExitError, "repo", "files", "a", "net/none.json")
	}
	t.Run("of a daemon", func(t *testing.T) {
		s.Daemon(t, func(c *agent.Config) { c.LocalGit = []string{filepath.Dir(dir)} })
		s.Must(t, 0, "repo", "create", "a", "--url", "file://"+dir)
		s.Call("repo", "pull", "a", "--wait") // it ends in warning
		read(t)
	})
	before := out
	s.Env["LIMPET_LOCAL_GIT_PREFIX"] = filepath.Dir(dir)
	if read(t); out != before {
		t.Errorf("without a daemon: %s\nwant: %s", out, before)
	}
	var got struct{ Items []snapshot.RepoFile }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, f := range got.Items {
		if states[f.Path] = f.State; f.State == snapshot.FileSynced && (f.UID != "core" || f.Title != "Core" || f.Kind != "Dashboard") ||
			f.State != snapshot.FileSynced && f.Reason == "" {
			t.Errorf("%+v", f)
		}
	}
	if len(states) != 4 || states["net/core.json"] != snapshot.FileSynced || states["net/bad.json"] != snapshot.FileUnread ||
		states["README.md"] != snapshot.FileLeftOut {
		t.Errorf("%v", states)
	}
}
