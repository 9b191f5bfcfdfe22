package repos

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestLife goes with a Repository from its creation over its first pull to those
// of its interval, and compares every write.
func TestLife(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, nil)
			r.repo.Add(t, "a.json")
			// An interval of a second is not to be had from an API, but of a controller.
			r.controller.interval = func(api.Repository) time.Duration { return time.Second }
			made := r.create(map[string]any{"git": map[string]any{"url": r.url}}, nil)
			r.pulls()
			repo := r.until("the first pull has ended", func(repo api.Repository) bool { return repo.Status.Sync.State == "success" })
			if repo.Spec.Git.Branch != testenv.Branch {
				t.Errorf("the branch is %q", repo.Spec.Git.Branch)
			}
			if c := condition(repo, "Ready"); c.Status != "True" || c.Reason != "Available" || c.Message != "Resource is available" || c.ObservedGeneration != 2 {
				t.Errorf("condition %+v", c)
			}
			if c := condition(repo, "NamespaceQuota"); c.Status != "True" || c.Reason != "QuotaUnlimited" {
				t.Errorf("condition %+v", c)
			}
			if repo.Status.ObservedGeneration != 2 || !repo.Status.Health.Healthy || repo.Status.Sync.LastRef != r.repo.Head(t) {
				t.Errorf("status %+v", repo.Status)
			}
			want := []string{
				"PATCH repositories/site: test /metadata/resourceVersion, add /spec/git/branch",
				"PATCH repositories/site/status: test /metadata/resourceVersion, add /status, add /status/health, add /status/observedGeneration, add /status/conditions, add /status/sync, add /status/sync/state, add /status/sync/started",
			}
			queued := `POST repositories/site/jobs {"action":"pull","pull":{"incremental":false}}`
			if server == "real" {
				want = append(want, queued+" [404]", `POST jobs`)
			} else {
				want = append(want, queued)
			}
			if got := r.writes.take(); !equalPrefixes(got, want) {
				t.Fatalf("writes\n%q\nwant\n%q", got, want)
			}

			// Nothing new: the remote is asked, nobody else.
			r.git.Reset()
			untilLooks(t, r, 3)
			if got := r.writes.take(); len(got) > 0 {
				t.Fatalf("an idle repository was written: %q", got)
			}

			r.repo.Add(t, "b.json")
			r.until("the second pull has ended", func(repo api.Repository) bool { return repo.Status.Sync.LastRef == r.repo.Head(t) })
			got := r.writes.take()
			if len(got) < 2 || got[0] != "PATCH repositories/site/status: test /metadata/resourceVersion, add /status/sync/state, add /status/sync/started" || !strings.Contains(got[1], `"incremental":true`) {
				t.Fatalf("writes of the interval: %q", got)
			}

			// A changed spec is pulled whole, once.
			eventually(t, "the job is gone", func() bool { return len(r.controller.jobs.Objects()) == 0 })
			r.merge(`{"spec":{"title":"Other"}}`)
			r.until("the change is dealt with", func(repo api.Repository) bool { return repo.Status.ObservedGeneration == 3 })
			r.until("and pulled", func(repo api.Repository) bool {
				return repo.Status.Sync.State == "success" && !repo.Status.Sync.Incremental
			})
			// ResourceQuota is there since the first pull, and told anew with the rest.
			if got = r.writes.take(); len(got) < 2 || got[0] != "PATCH repositories/site/status: test /metadata/resourceVersion, add /status/observedGeneration, add /status/conditions, add /status/sync/state, add /status/sync/started" ||
				!strings.Contains(got[1], `"incremental":false`) {
				t.Fatalf("writes after a change: %q", got)
			}

			_, whole := r.get()
			wellFormed(t, whole.Object)
			if err := r.client.Resource(api.Repositories).Namespace(r.namespace).Delete(t.Context(), made.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is forgotten", func() bool {
				r.controller.mu.Lock()
				defer r.controller.mu.Unlock()
				return len(r.controller.memories) == 0 && r.controller.Next(r.namespace, "site").IsZero()
			})
		})
	}
}

// untilLooks waits until the remote was asked so often.
func untilLooks(t *testing.T, r *rig, looks int) {
	t.Helper()
	seen := 0
	eventually(t, "the remote is asked", func() bool {
		counts := r.git.Reset()
		seen += counts.InfoRefs
		if counts.UploadPack > 0 {
			t.Fatal("a look fetched")
		}
		return seen >= looks
	})
}

func equalPrefixes(got, want []string) bool {
	return slices.EqualFunc(got, want, func(g, w string) bool { return strings.HasPrefix(g, w) })
}

// eventually waits across goroutines that talk HTTP, which no bubble can hold.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("timed out: %s", what)
		case <-tick.C:
		}
	}
}
