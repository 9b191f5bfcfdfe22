package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestRevisionsOfASite: a site that follows a tag, and then a range of versions, on
// the embedded API.
func TestRevisionsOfASite(t *testing.T) {
	t.Parallel()
	repo := testenv.Repo(t, 1, 2)
	one := repo.Head(t)
	repo.Git(t, "-c", "user.name=u", "-c", "user.email=u@x", "tag", "-a", "-m", "release", "v1.0.0")
	repo.Add(t, "later.json")
	two := repo.Head(t)
	host := testenv.Git(t, testenv.GitOptions{})
	url := host.Serve("boards.git", repo.Dir)
	h := newHome(t)
	d := h.daemon(t)
	if got := h.must(t, 2, "repo", "create", "site", "--url", url, "--branch", "main", "--ref", "tag:v1.0.0"); !strings.Contains(got.err, "--ref") {
		t.Errorf("%s", got.err)
	}
	if got := h.must(t, 1, "repo", "create", "site", "--url", url, "--ref", "v1.0.0"); !strings.Contains(got.err, "write tag:NAME") {
		t.Errorf("%s", got.err)
	}
	h.must(t, 0, "repo", "create", "site", "--url", url, "--ref", "tag:v1.0.0")
	var object struct {
		api.Repository
		Metadata struct{ Annotations map[string]string }
	}
	pulled := func(commit string) {
		t.Helper()
		until(t, "the pull of "+commit, func() bool {
			if err := json.Unmarshal([]byte(h.must(t, 0, "get", "repository", "site", "-o", "json").out), &object); err != nil {
				t.Fatal(err)
			}
			return object.Status.Sync.LastRef == commit && object.Status.Sync.State == api.StateSuccess
		})
	}
	pulled(one)
	shows := func(texts ...string) {
		t.Helper()
		for _, command := range []string{"show", "test"} {
			got := h.must(t, 0, "repo", command, "site").out
			for _, text := range texts {
				if !strings.Contains(got, text) {
					t.Errorf("repo %s does not tell %q:\n%s", command, text, got)
				}
			}
		}
	}
	shows("tag:v1.0.0 is v1.0.0, commit "+one, "tag object ")
	repo.Git(t, "tag", "v1.1.0", two)
	file := h.must(t, 0, "get", "repository", "site", "-o", "yaml").out
	h.file(t, "site.yaml", strings.Replace(file, "tag:v1.0.0", "semver:1.x", 1))
	h.must(t, 0, "apply", "-f", h.dir+"/site.yaml")
	pulled(two)
	shows("semver:1.x is v1.1.0, commit " + two)
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
