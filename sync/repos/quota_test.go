package repos

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
)

// second makes another Repository like the first.
func (r *rig) second() {
	r.t.Helper()
	_, u := r.get()
	u = u.DeepCopy()
	u.SetName("second")
	u.SetResourceVersion("")
	u.SetUID("")
	if err := unstructured.SetNestedField(u.Object, "second", "spec", "git", "branch"); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Create(r.t.Context(), u, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// state has another controller change the status of the Repository.
func (r *rig) state(patch string) {
	r.t.Helper()
	res := r.client.Resource(api.Repositories).Namespace(r.namespace)
	if _, err := res.Patch(r.t.Context(), "site", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		r.t.Fatal(err)
	}
}

// about keeps the writes to the Repository "site".
func about(writes []string) []string {
	return slices.DeleteFunc(writes, func(w string) bool { return !strings.Contains(w, "repositories/site") })
}

// TestQuota: a Repository too many blocks all of its namespace until one goes, and
// each turn is one write.
func TestQuota(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, func(_ *rig, o *Options) { o.Quota = Quota{Repositories: 1, Resources: 5} })
			r.repo.Add(t, "a.json")
			r.create(nil, nil)
			repo := r.until("the first is healthy", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
			reached := condition(repo, "NamespaceQuota")
			if c := reached; c.Status != "True" || c.Reason != "QuotaReached" || c.Message != "namespace quota reached: 1/1 repositories" ||
				repo.Status.Quota != (api.QuotaStatus{MaxRepositories: 1, MaxResourcesPerRepository: 5}) {
				t.Errorf("condition %+v, quota %+v", c, repo.Status.Quota)
			}
			queued := 2 // the status and the pull
			if server == "real" {
				queued = 3 // the route of the pull, and then the job
			}
			r.wrote(queued)
			r.second()
			repo = r.until("it is blocked", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
			const text = "namespace quota exceeded: 2/1 repositories"
			for kind, reason := range map[string]string{"Ready": "QuotaExceeded", "NamespaceQuota": "QuotaExceeded"} {
				if c := condition(repo, kind); c.Status != "False" || c.Reason != reason || c.Message != text || c.ObservedGeneration != 1 {
					t.Errorf("condition %+v", c)
				}
			}
			if h := repo.Status.Health; !slices.Equal(h.Message, []string{text}) || h.Error != "health" {
				t.Errorf("health %+v", h)
			}
			if len(repo.Status.FieldErrors) != 1 || repo.Status.FieldErrors[0].Detail != text {
				t.Errorf("fieldErrors %+v", repo.Status.FieldErrors)
			}
			var writes []string
			eventually(t, "the second is blocked as well", func() bool {
				writes = append(writes, r.writes.take()...)
				return slices.ContainsFunc(writes, func(w string) bool { return strings.HasPrefix(w, "PATCH repositories/second/status") })
			})
			if got := about(writes); len(got) != 1 {
				t.Errorf("writes %q", got)
			}
			asked := r.git.Reset()
			r.later(unhealthyFor + time.Second)
			r.until("it is reported anew", func(now api.Repository) bool { return now.Status.Health.Checked > repo.Status.Health.Checked })
			if asked = r.git.Reset(); asked.InfoRefs > 0 {
				t.Errorf("the remote was asked %d times", asked.InfoRefs)
			}
			if got := about(r.writes.take()); len(got) != 1 ||
				got[0] != "PATCH repositories/site/status: test /metadata/resourceVersion, add /status/health" {
				t.Errorf("writes %q", got)
			}
			if err := r.client.Resource(api.Repositories).Namespace(r.namespace).Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			repo = r.until("it is healthy again", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
			if c := condition(repo, "NamespaceQuota"); c.Status != "True" || c.Reason != "QuotaReached" || len(repo.Status.FieldErrors) > 0 {
				t.Errorf("condition %+v, fieldErrors %+v", c, repo.Status.FieldErrors)
			}
			if c := condition(repo, "Ready"); c.Status != "True" || c.Reason != "Available" {
				t.Errorf("condition %+v", c)
			}
		})
	}
}
