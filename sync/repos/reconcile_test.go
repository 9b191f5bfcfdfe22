package repos

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/testenv"
)

// TestLifeOfARepository goes with a Repository from its creation over its first pull to those
// of its interval, and compares every write.
func TestLifeOfARepository(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, nil)
			r.repo.Add(t, "a.json")
			// An interval of a second is not to be had from an API, but of a controller.
			r.controller.facts.interval = func(api.Repository) time.Duration { return time.Second }
			made := r.create(map[string]any{"git": map[string]any{"url": r.url}}, nil)
			r.pulls()
			repo := r.until("the first pull has ended", func(repo api.Repository) bool { return repo.Status.Sync.State == "success" })
			if repo.Spec.Git.Branch != testenv.Branch {
				t.Errorf("the branch is %q", repo.Spec.Git.Branch)
			}
			if c := condition(repo, "Ready"); c.Status != "True" || c.Reason != "Available" || c.Message != "Resource is available" ||
				c.ObservedGeneration != 2 {
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

			// Nothing new: the remote is asked, no one else.
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
			eventually(t, "the job is gone", func() bool { return len(r.controller.facts.jobs.Objects()) == 0 })
			r.merge(`{"spec":{"title":"Other"}}`)
			r.until("the change is dealt with", func(repo api.Repository) bool { return repo.Status.ObservedGeneration == 3 })
			r.until("and pulled", func(repo api.Repository) bool {
				return repo.Status.Sync.State == "success" && !repo.Status.Sync.Incremental
			})
			// ResourceQuota is there since the first pull, and reported anew with the rest.
			if got = r.writes.take(); len(got) < 2 ||
				got[0] != "PATCH repositories/site/status: test /metadata/resourceVersion, add /status/observedGeneration, add /status/conditions, add /status/sync/state, add /status/sync/started" ||
				!strings.Contains(got[1], `"incremental":false`) {
				t.Fatalf("writes after a change: %q", got)
			}

			_, whole := r.get()
			wellFormed(t, whole.Object)
			if err := r.client.Resource(api.Repositories).Namespace(r.namespace).Delete(t.Context(), made.GetName(),
				metav1.DeleteOptions{}); err != nil {
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

// TestFaults: what is wrong with a Repository is reported within one reconcile, in one
// patch, and when it is over the next check finds out by itself and everything is
// pulled.
func TestFaults(t *testing.T) {
	t.Parallel()
	status := func(code int) func(*rig, *testing.T) (string, func()) {
		return func(r *rig, t *testing.T) (string, func()) {
			var well atomic.Bool
			host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if !well.Load() {
					w.WriteHeader(code)
					return
				}
				r.git.ServeHTTP(w, req)
			}))
			t.Cleanup(host.Close)
			return host.URL + strings.TrimPrefix(r.url, r.git.URL), func() { well.Store(true) }
		}
	}
	for _, c := range []struct {
		name   string
		git    testenv.GitOptions
		empty  bool
		branch string
		// spoil makes the fault, and returns the URL to use and the cure.
		spoil                     func(r *rig, t *testing.T) (url string, cure func())
		reason, text, kind, field string
	}{
		{name: "wrong token", git: testenv.GitOptions{User: "git", Password: "right"},
			spoil: func(r *rig, _ *testing.T) (string, func()) {
				r.creds.Store(&auth.Credentials{Password: "wrong"})
				return r.url, func() { r.creds.Store(&auth.Credentials{Password: "right"}) }
			}, reason: "AuthenticationFailed", text: "authentication failed (401 Unauthorized)", kind: "FieldValueInvalid", field: "secure.token"},
		{name: "missing branch", branch: "mian",
			spoil: func(r *rig, t *testing.T) (string, func()) {
				return r.url, func() { r.repo.Git(t, "branch", "mian", testenv.Branch) }
			}, reason: "InvalidSpec", text: `there is no branch "mian" (did you mean main?)`, kind: "FieldValueNotFound", field: "spec.git.branch"},
		{name: "no branches", empty: true,
			spoil:  func(r *rig, t *testing.T) (string, func()) { return r.url, func() { r.repo.Add(t, "a.json") } },
			reason: "InvalidSpec", text: "repository has no branches", kind: "FieldValueNotFound", field: "spec.git.branch"},
		{name: "no repository",
			spoil: func(r *rig, _ *testing.T) (string, func()) {
				return r.git.URL + "/other.git", func() { r.git.Serve("other.git", r.repo.Dir) }
			}, reason: "InvalidSpec", text: "repository not found", kind: "FieldValueNotFound", field: "spec.git.url"},
		{name: "unreachable host",
			spoil: func(r *rig, t *testing.T) (string, func()) {
				host := httptest.NewServer(nil)
				addr := host.Listener.Addr().String()
				host.Close()
				return "http://" + addr + strings.TrimPrefix(r.url, r.git.URL), func() {
					ln, err := net.Listen("tcp", addr)
					if err != nil {
						t.Fatal(err)
					}
					again := &httptest.Server{Listener: ln, Config: &http.Server{Handler: r.git}}
					again.Start()
					t.Cleanup(again.Close)
				}
			}, reason: "ServiceUnavailable", text: "connection refused: ", kind: "InternalError", field: "spec.git.url"},
		{name: "429", spoil: status(429), reason: "RateLimited", text: "too many requests", kind: "InternalError", field: "spec.git.url"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "embedded", func(r *rig, _ *Options) { r.git = testenv.Git(t, c.git) })
			if !c.empty {
				r.repo.Add(t, "a.json")
			}
			url, cure := c.spoil(r, t)
			block := map[string]any{"url": url, "branch": testenv.Branch}
			if c.branch != "" {
				block["branch"] = c.branch
			}
			r.create(map[string]any{"git": block}, nil)
			repo := r.until("the fault is reported", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
			ready := condition(repo, "Ready")
			if ready.Status != "False" || ready.Reason != c.reason || !strings.Contains(ready.Message, c.text) {
				t.Errorf("condition %+v", ready)
			}
			h := repo.Status.Health
			if h.Healthy || h.Error != "health" || len(h.Message) != 1 || h.Message[0] != ready.Message {
				t.Errorf("health %+v", h)
			}
			if e := repo.Status.FieldErrors; len(e) != 1 || e[0].Type != c.kind || e[0].Field != c.field || e[0].Detail != ready.Message {
				t.Errorf("fieldErrors %+v", e)
			}
			if s := repo.Status.Sync; s.State != "error" || !slices.Equal(s.Message, []string{"Repository is unhealthy"}) {
				t.Errorf("sync %+v", s)
			}
			r.wrote(1)
			cure()
			r.later(unhealthyFor + time.Second)
			repo = r.until("it is healthy again", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
			if ready := condition(repo, "Ready"); ready.Status != "True" || ready.Reason != "Available" {
				t.Errorf("condition %+v", ready)
			}
			if s := repo.Status.Sync; s.State != "pending" || len(s.Message) > 0 || len(repo.Status.FieldErrors) > 0 {
				t.Errorf("sync %+v, fieldErrors %+v", s, repo.Status.FieldErrors)
			}
			eventually(t, "everything is pulled", func() bool {
				u, err := r.client.Resource(api.Jobs).Namespace(r.namespace).Get(t.Context(), "site-sync", metav1.GetOptions{})
				if err != nil {
					return false
				}
				job, err := api.JobView(u)
				return err == nil && job.Spec.Pull != nil && !job.Spec.Pull.Incremental
			})
			r.wrote(2)
		})
	}
}

// TestBrokenSpec: a spec that breaks the rules is reported field by field, and no one
// is asked. Only a server without admission stores one.
func TestBrokenSpec(t *testing.T) {
	t.Parallel()
	r := newRig(t, "real", nil)
	r.create(map[string]any{"git": map[string]any{"url": r.url, "path": "../etc", "branch": "a..b"}}, nil)
	repo := r.until("it is reported", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	var fields []string
	for _, e := range repo.Status.FieldErrors {
		fields = append(fields, e.Type+" "+e.Field)
	}
	if want := []string{"FieldValueInvalid spec.git.path", "FieldValueInvalid spec.git.branch"}; !slices.Equal(fields, want) {
		t.Errorf("fieldErrors %q", fields)
	}
	if c := condition(repo, "Ready"); c.Reason != "InvalidSpec" || !strings.HasPrefix(c.Message, "spec.git.path: ") {
		t.Errorf("condition %+v", c)
	}
	if n := r.git.Reset(); n.InfoRefs > 0 {
		t.Errorf("the remote was asked %d times", n.InfoRefs)
	}
}
