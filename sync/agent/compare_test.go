package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/api"
	"limpet/sync/git"
	selector "limpet/sync/git/gitref"
	"limpet/sync/snapshot"
	"limpet/sync/testenv"
)

// TestCompare checks that changes are read from the mirror without a request, also
// from the empty tree, and that an unknown commit is named.
func TestCompare(t *testing.T) {
	t.Parallel()
	origin := testenv.EmptyRepo(t)
	first := origin.Commit(t, "one", testenv.Change{Path: "grafana/a.json", Data: []byte(`{"title":"A","panels":[1,2]}`)},
		testenv.Change{Path: "grafana/moved.json", Data: []byte(strings.Repeat("a line\n", 30))},
		testenv.Change{Path: "other.json", Data: []byte("{}")})
	second := origin.Commit(t, "two", testenv.Change{Path: "grafana/a.json", Data: []byte(`{"panels":[1,3],"title":"A"}`)},
		testenv.Change{Path: "grafana/moved.json"}, testenv.Change{Path: "grafana/here.json", Data: []byte(strings.Repeat("a line\n", 30))},
		testenv.Change{Path: "grafana/large.txt", Data: []byte(strings.Repeat("x", snapshot.MaxFileBytes+1))},
		testenv.Change{Path: "grafana/empty.txt", Data: []byte{}}, testenv.Change{Path: "other.json", Data: []byte("[]")})
	a, _ := newAgent(t, func(c *Config) { c.LocalGit = []string{filepath.Dir(origin.Dir)} })
	remote := git.Remote{URL: "file://" + origin.Dir}
	start(t, a.jobs.Run, a.repos.Run)
	repository(t, a, "site", nil)
	patchRepository(t, a, "site", map[string]any{"spec": map[string]any{"git": map[string]any{"url": remote.URL, "path": "grafana/"}}})
	eventually(t, "the agent sees the URL", func() bool {
		u, _ := a.repos.Get("default", "site")
		repo, err := api.RepositoryView(u)
		return err == nil && repo.Spec.Block().URL == remote.URL
	})
	q := snapshot.CompareQuery{Namespace: "default", Repository: "site", From: first, To: second}
	if _, err := a.Compare(t.Context(), q); err == nil || !strings.Contains(err.Error(), "does not have both commits") {
		t.Errorf("nothing was fetched: %v", err)
	}
	ref, err := a.access.mirrors.Resolve(t.Context(), remote, selector.Selector{})
	must(t, err)
	origin.Git(t, "update-ref", "refs/heads/"+testenv.Branch, first)
	if _, err := a.access.mirrors.Fetch(t.Context(), remote, git.Ref{Name: ref.Name, Hash: first}); err != nil {
		t.Fatal(err)
	}
	origin.Git(t, "update-ref", "refs/heads/"+testenv.Branch, second)
	if _, err := a.access.mirrors.Fetch(t.Context(), remote, ref); err != nil {
		t.Fatal(err)
	}
	got, err := a.Compare(t.Context(), q)
	must(t, err)
	want := []snapshot.FileChange{{Type: "modified", Path: "a.json"}, {Type: "added", Path: "empty.txt"},
		{Type: "renamed", Path: "here.json", From: "moved.json"}, {Type: "added", Path: "large.txt"}}
	if len(got.Files) != len(want) || got.All != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got.Files[i] != want[i] {
			t.Errorf("file %d: %+v, want %+v", i, got.Files[i], want[i])
		}
	}
	text := func(path string) snapshot.TextChange {
		t.Helper()
		q := q
		q.Path = path
		got, err := a.Compare(t.Context(), q)
		if err != nil || got.Text == nil {
			t.Fatalf("%s: %+v %v", path, got, err)
		}
		return *got.Text
	}
	if got := text("a.json"); got.Added != 1 || got.Deleted != 1 || got.Form != "as JSON, keys sorted" {
		t.Errorf("a.json: %+v", got)
	}
	if got := text("here.json"); got.Form != "the content is the same" {
		t.Errorf("here.json: %+v", got)
	}
	if got := text("large.txt"); !strings.Contains(got.Form, "not compared: it has 1") || len(got.Lines) > 0 {
		t.Errorf("large.txt: %+v", got)
	}
	if got := text("empty.txt"); got.Form != "the file is empty" {
		t.Errorf("empty.txt: %+v", got)
	}
	fresh := q
	fresh.From = ""
	if got, err := a.Compare(t.Context(), fresh); err != nil || got.All != 4 ||
		got.Files[0] != (snapshot.FileChange{Type: "added", Path: "a.json"}) {
		t.Errorf("nothing before: %+v %v", got, err)
	}
	fresh.Path = "a.json"
	if got, err := a.Compare(t.Context(), fresh); err != nil || got.Text.Added != 7 || got.Text.Deleted != 0 {
		t.Errorf("a new file: %+v %v", got, err)
	}
	for what, change := range map[string]func(*snapshot.CompareQuery){
		"did not change":     func(q *snapshot.CompareQuery) { q.Path = "../other.json" },
		"is not there":       func(q *snapshot.CompareQuery) { q.Repository = "none" },
		"does not have both": func(q *snapshot.CompareQuery) { q.From = strings.Repeat("0", 40) },
	} {
		bad := q
		change(&bad)
		if _, err := a.Compare(t.Context(), bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
}
