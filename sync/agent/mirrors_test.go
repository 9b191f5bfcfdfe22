package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/git"
	selector "limpet/sync/git/gitref"
	"limpet/sync/testenv"
)

// TestPruneMirrors: a mirror goes when no Repository uses it and it has rested
// long enough, and never while the cache of Repositories is incomplete.
func TestPruneMirrors(t *testing.T) {
	t.Parallel()
	origin := testenv.Repo(t, 1, 1)
	a, _ := newAgent(t, func(c *Config) { c.LocalGit = []string{filepath.Dir(origin.Dir)} })
	used := git.Remote{URL: "file://" + origin.Dir}
	ref, err := a.mirrors.Resolve(t.Context(), used, selector.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.mirrors.Fetch(t.Context(), used, ref); err != nil {
		t.Fatal(err)
	}
	unused := filepath.Join(mirrorsPath(a.cfg.StatePath), strings.Repeat("a", 32))
	if err := os.Mkdir(unused, 0o700); err != nil {
		t.Fatal(err)
	}
	mirrors := func() int {
		dirs, err := filepath.Glob(filepath.Join(mirrorsPath(a.cfg.StatePath), strings.Repeat("?", 32)))
		if err != nil {
			t.Fatal(err)
		}
		return len(dirs)
	}
	a.pruneMirrorsOnce(0)
	if n := mirrors(); n != 2 {
		t.Fatalf("%d of 2 mirrors left before the watch has synced", n)
	}
	start(t, a.jobs.Run, a.repos.Run)
	repository(t, a, "site", nil)
	patch := []byte(`{"spec": {"git": {"url": "` + used.URL + `"}}}`)
	repos := a.client.Resource(api.Repositories).Namespace("default")
	if _, err := repos.Patch(t.Context(), "site", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent sees the URL", func() bool {
		u, _ := a.repos.Get("default", "site")
		repo, err := api.RepositoryView(u)
		return err == nil && repo.Spec.Block().URL == used.URL
	})
	a.pruneMirrorsOnce(time.Hour)
	if n := mirrors(); n != 2 {
		t.Fatalf("%d of 2 mirrors left before one has rested", n)
	}
	a.pruneMirrorsOnce(0)
	if _, err := os.Stat(unused); err == nil || mirrors() != 1 {
		t.Fatalf("%d mirrors left, want the one that is used", mirrors())
	}
}
