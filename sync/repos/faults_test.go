package repos

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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

// TestFaults: what is wrong with a Repository is told within one reconcile, in one
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
			}, reason: "AuthenticationFailed", text: "it refuses these credentials", kind: "FieldValueInvalid", field: "secure.token"},
		{name: "no token", git: testenv.GitOptions{User: "git", Password: "right"},
			spoil: func(r *rig, _ *testing.T) (string, func()) {
				return r.url, func() { r.creds.Store(&auth.Credentials{Password: "right"}) }
			}, reason: "AuthenticationFailed", text: "it wants credentials", kind: "FieldValueInvalid", field: "secure.token"},
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
			}, reason: "InvalidSpec", text: "no repository there", kind: "FieldValueNotFound", field: "spec.git.url"},
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
			}, reason: "ServiceUnavailable", text: "nothing listens there", kind: "InternalError", field: "spec.git.url"},
		{name: "unknown authority", git: testenv.GitOptions{TLS: true},
			spoil: func(r *rig, t *testing.T) (string, func()) {
				return r.url, func() {
					ca, err := os.ReadFile(r.git.CAFile)
					if err != nil {
						t.Fatal(err)
					}
					r.creds.Store(&auth.Credentials{CA: ca})
				}
			}, reason: "ServiceUnavailable", text: "signed by an unknown authority", kind: "InternalError", field: "spec.git.url"},
		{name: "503", spoil: status(503), reason: "ServiceUnavailable", text: "it answers 503", kind: "InternalError", field: "spec.git.url"},
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
			repo := r.until("the fault is told", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
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
			repo = r.until("it is well again", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
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

// TestBrokenSpec: a spec that breaks the rules is told field by field, and nobody
// is asked. Only a server without admission stores one.
func TestBrokenSpec(t *testing.T) {
	t.Parallel()
	r := newRig(t, "real", nil)
	r.create(map[string]any{"git": map[string]any{"url": r.url, "path": "../etc"}, "sync": map[string]any{"enabled": true, "target": "nowhere", "intervalSeconds": int64(60)}}, nil)
	repo := r.until("it is told", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	var fields []string
	for _, e := range repo.Status.FieldErrors {
		fields = append(fields, e.Type+" "+e.Field)
	}
	if want := []string{"FieldValueInvalid spec.git.path", "FieldValueNotSupported spec.sync.target"}; !slices.Equal(fields, want) {
		t.Errorf("fieldErrors %q", fields)
	}
	if c := condition(repo, "Ready"); c.Reason != "InvalidSpec" || !strings.HasPrefix(c.Message, "spec.git.path: ") {
		t.Errorf("condition %+v", c)
	}
	if n := r.git.Reset(); n.InfoRefs > 0 {
		t.Errorf("the remote was asked %d times", n.InfoRefs)
	}
}
