package repos

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/testenv"
)

// selects annotates the Repository; "" takes the annotation away.
func (r *rig) selects(text string) error {
	value := "null"
	if text != "" {
		value = fmt.Sprintf("%q", text)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, api.AnnoGitRef, value)
	_, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(r.t.Context(), "site", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// TestRevisions goes with a Repository from its branch to tags, to a commit, and
// back. What the annotation says now has effect at once, what it stands for is
// followed at the interval, and a wrong one is reported and pulls nothing.
func TestRevisions(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, nil)
			r.repo.Add(t, "a.json")
			one := r.repo.Head(t)
			r.repo.Git(t, "-c", "user.name=u", "-c", "user.email=u@x", "tag", "-a", "-m", "release", "v1.0.0")
			r.repo.Add(t, "b.json")
			two := r.repo.Head(t)
			r.create(nil, nil)
			r.pulls()
			r.pulled(two)
			// Nothing is due for a minute: what comes now, comes of the annotation.
			r.selectsWell("semver:1.x")
			repo := r.pulled(one)
			if c := condition(repo, conditionRevision); c.Status != "True" ||
				!strings.HasPrefix(c.Message, "semver:1.x is v1.0.0, commit "+one+", tag object ") {
				t.Errorf("%+v", c)
			}
			if repo.Spec.Git.Branch != testenv.Branch {
				t.Errorf("the branch of the spec is %q", repo.Spec.Git.Branch)
			}

			// A tag that is made anew for the same commit: nothing is to be pulled.
			before := condition(repo, conditionRevision).Message
			r.repo.Git(t, "-c", "user.name=u", "-c", "user.email=u@x", "tag", "-f", "-a", "-m", "again", "v1.0.0", one)
			r.later(2 * time.Minute)
			r.until("the moved tag is reported", func(repo api.Repository) bool {
				text := condition(repo, conditionRevision).Message
				return text != before && strings.Contains(text, one)
			})

			// A new version is found by one request, and pulled.
			r.git.Reset()
			r.later(2 * time.Minute)
			eventually(t, "it is asked for", func() bool { return r.git.Reset().InfoRefs > 0 })
			if counts := r.git.Reset(); counts.InfoRefs+counts.UploadPack > 0 {
				t.Errorf("with nothing new: %+v", counts)
			}
			r.repo.Git(t, "tag", "v1.1.0", two)
			r.later(2 * time.Minute)
			repo = r.pulled(two)
			if c := condition(repo, conditionRevision); c.Message != "semver:1.x is v1.1.0, commit "+two {
				t.Errorf("%+v", c)
			}

			r.writes.take()
			if err := r.selects("semver:latest"); server == "embedded" {
				if err == nil || !strings.Contains(err.Error(), "write one such as 1.x") {
					t.Errorf("a wrong annotation is taken: %v", err)
				}
			} else {
				repo := r.until("a wrong one is reported", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
				c, faults := condition(repo, "Ready"), repo.Status.FieldErrors
				if c.Reason != "InvalidSpec" || len(faults) != 1 || faults[0].Field != "metadata.annotations[limpet/git-ref]" ||
					!strings.Contains(faults[0].Detail, "write one such as 1.x") {
					t.Errorf("%+v %+v", c, faults)
				}
				r.later(2 * time.Minute)
				eventually(t, "it is reconciled", func() bool { return r.controller.Len() == 0 })
				if got := r.writes.take(); slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, "POST") }) {
					t.Errorf("it was pulled: %q", got)
				}
			}

			// A commit is fetched once, and then no one is asked any more.
			r.selectsWell("commit:" + one)
			r.pulled(one)
			r.git.Reset()
			for range 3 {
				r.later(2 * time.Minute)
				was := r.checked()
				r.later(10 * time.Minute)
				r.until("it is checked", func(repo api.Repository) bool { return repo.Status.Health.Checked > was && repo.Status.Health.Healthy })
			}
			if counts := r.git.Reset(); counts.InfoRefs+counts.UploadPack > 0 {
				t.Errorf("a commit that is here is asked for: %+v", counts)
			}

			r.selectsWell("")
			repo = r.pulled(two)
			if c := condition(repo, conditionRevision); c.Type != "" {
				t.Errorf("the condition stays: %+v", c)
			}
		})
	}
}

func (r *rig) selectsWell(text string) {
	r.t.Helper()
	if err := r.selects(text); err != nil {
		r.t.Fatal(err)
	}
}

// pulled waits until a commit was pulled.
func (r *rig) pulled(commit string) api.Repository {
	r.t.Helper()
	return r.until("the pull of "+commit, func(repo api.Repository) bool {
		return repo.Status.Sync.LastRef == commit && repo.Status.Sync.State == "success"
	})
}

func (r *rig) checked() int64 {
	repo, _ := r.get()
	return repo.Status.Health.Checked
}

// TestMirrorServes: a Repository whose host goes away stays healthy and says which mirror
// serves it, in its status and by an event; and again when the host is back.
func TestMirrorServes(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var away atomic.Bool
			r := newRig(t, server, func(r *rig, o *Options) {
				m, err := git.Open(t.TempDir(), git.Options{Pause: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				r.mirrors, o.Git = m, m
			})
			r.repo.Add(t, "a.json")
			host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if away.Load() {
					http.Error(w, "", http.StatusBadGateway)
					return
				}
				r.git.ServeHTTP(w, req)
			}))
			t.Cleanup(host.Close)
			second := r.git.Serve("copy.git", r.repo.Dir)
			own := host.URL + "/ops/dashboards.git"
			r.mirrored = second
			r.create(map[string]any{"git": map[string]any{"url": own}}, nil)
			well := r.until("it is healthy", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
			if !well.Status.Health.Healthy || len(well.Status.Health.Message) > 0 {
				t.Fatalf("%+v", well.Status.Health)
			}
			away.Store(true)
			r.later(healthyFor + time.Minute)
			words := "fetched from mirror " + second + "; " + own + " is unreachable: 502 Bad Gateway"
			told := r.until("it is reported", func(repo api.Repository) bool { return len(repo.Status.Health.Message) > 0 })
			if ready := condition(told, "Ready"); !told.Status.Health.Healthy || told.Status.Health.Message[0] != words || ready.Status != "True" ||
				ready.Message != "Resource is available: "+words || len(told.Status.FieldErrors) > 0 {
				t.Errorf("%+v, %+v", told.Status.Health, ready)
			}
			r.tells("warn", words)
			_, u := r.get()
			tester := &Tester{Git: r.mirrors, Insecure: true, Now: time.Now}
			tester.Credentials.Repositories = r.credentials()
			got, err := tester.Test(t.Context(), u)
			if err != nil || !got.Success || stepsOf(got) != "spec ok, credentials ok, remote ok, mirror "+second+" ok, branch ok" ||
				!strings.Contains(got.Steps[2].Detail, words) {
				t.Errorf("%+v, %v", got, err)
			}
			away.Store(false)
			r.later(healthyFor + time.Minute)
			back := r.until("it is back", func(repo api.Repository) bool { return len(repo.Status.Health.Message) == 0 })
			if ready := condition(back, "Ready"); !back.Status.Health.Healthy || ready.Message != "Resource is available" {
				t.Errorf("%+v, %+v", back.Status.Health, ready)
			}
			r.tells("info", "its own host answers again")
			// A mirror that does not serve makes no one unhealthy, and a test reports it.
			r.git.Serve("copy.git", testenv.EmptyRepo(t).Dir)
			_, u = r.get()
			got, err = tester.Test(t.Context(), u)
			if err != nil || !got.Success || !strings.Contains(stepsOf(got), "remote ok, mirror "+second+" warning, branch ok") {
				t.Errorf("%+v, %v", got, err)
			}
			away.Store(true)
			r.later(healthyFor + time.Minute)
			ill := r.until("it is unhealthy", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
			if text := ill.Status.Health.Message[0]; !strings.Contains(text, "502") || !strings.Contains(text, "mirror "+second+": ") ||
				condition(ill, "Ready").Reason != "ServiceUnavailable" {
				t.Errorf("%+v", ill.Status)
			}
		})
	}
}

// tells waits for an event.
func (r *rig) tells(level, text string) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-r.events:
			if e.Level == level && strings.Contains(e.Text, text) {
				return
			}
		case <-deadline:
			r.t.Fatalf("no event %q", text)
		}
	}
}
