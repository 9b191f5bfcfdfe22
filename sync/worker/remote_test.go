package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/netx"
	"limpet/sync/worker/checkout"
)

// TestReady: who may run which job, without a server.
func TestReady(t *testing.T) {
	t.Parallel()
	secret := func(name string) map[string]api.SecureValue { return map[string]api.SecureValue{"token": {Name: name}} }
	token := auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{Username: "git", Password: "s3cr3t"}, nil
	})
	repo := func(kind string, change func(*api.Repository)) api.Repository {
		block := &api.GitBlock{URL: "https://git.example.com/o/r"}
		v := api.Repository{Spec: api.RepositorySpec{Type: kind, Sync: api.SyncSpec{Enabled: true}, Git: block, GitHub: block, GitLab: block,
			Bitbucket: block, Local: block}}
		if change != nil {
			change(&v)
		}
		return v
	}
	for _, c := range []struct {
		name string
		repo api.Repository
		from auth.Source
		err  string
	}{
		{"public", repo("git", nil), nil, ""},
		{"token", repo("github", func(r *api.Repository) { r.Secure = secret("inline-1") }), token, ""},
		{"no token", repo("github", func(r *api.Repository) { r.Secure = secret("inline-1") }), auth.Chain(),
			`secure.token is the secret "inline-1"`},
		{"where to put it", repo("gitlab", func(r *api.Repository) { r.Secure = secret("x") }), nil,
			"default.repo/token below --credentials-dir"},
		{"connection", repo("github", func(r *api.Repository) {
			r.Spec.Connection = &struct {
				Name string `json:"name"`
			}{Name: "app"}
		}), nil, `connection "app"`},
		{"local", repo("local", func(r *api.Repository) { r.Spec.Local = &api.GitBlock{Path: "/etc"} }), nil, "--local-prefix"},
		{"local without a path", repo("local", func(r *api.Repository) { r.Spec.Local = &api.GitBlock{} }), nil, "spec.local.path"},
		{"unknown type", repo("svn", nil), nil, "spec.svn is missing"},
		{"no URL", repo("git", func(r *api.Repository) { r.Spec.Git = &api.GitBlock{} }), nil, "spec.git.url is missing"},
		{"disabled", repo("local", func(r *api.Repository) { r.Spec.Sync.Enabled = false }), nil, ""},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName("repo")
		u.SetNamespace("default")
		err := NewPull(PullOptions{Source: checkout.Source{Credentials: c.from}}).Ready(t.Context(), jobs.Task{Namespace: "default", Repo: u, Repository: c.repo})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
	if err := NewPull(PullOptions{}).Ready(t.Context(), jobs.Task{}); err != nil {
		t.Errorf("a job without a repository: %v", err)
	}
}

// behind puts a server in front of the Git host of the rig that answers the first requests itself.
func (r *rig) behind(first int64, answer http.HandlerFunc) string {
	at, err := url.Parse(r.git.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	var n atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n.Add(1) <= first {
			answer(w, req)
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	r.t.Cleanup(front.Close)
	return front.URL + strings.TrimPrefix(r.url, r.git.URL)
}

// TestGitHostIsInTrouble: the pull is tried again, and only when a trial can mend it.
func TestGitHostIsInTrouble(t *testing.T) {
	t.Parallel()
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		text   string
		final  bool
	}{
		"503":       {status(503), "tried again in 5s", false},
		"500":       {status(500), "tried again in 5s", false},
		"429":       {status(429, "Retry-After", "7"), "tried again in 7s", false},
		"broken":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "tried again in 5s", false},
		"401":       {status(401), "", true},
		"404":       {status(404), "", true},
		"not Git's": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "embedded", nil)
			r.commit("a.json", board("a", "A"))
			r.repository(map[string]any{"git": map[string]any{"url": r.behind(1, c.answer)}}, nil)
			r.submit(false, nil)
			e := r.ended()
			if c.final {
				if e.Type != jobs.EventCompleted || e.State != "error" {
					t.Errorf("%+v", e)
				}
				return
			}
			// The rest is jittered by a tenth, and told in seconds.
			if e.Type != jobs.EventRetry || !strings.Contains(e.Text, c.text) && !strings.Contains(e.Text, "again in 6s") {
				t.Fatalf("%+v", e)
			}
			if sync, _ := r.sync(); sync.State != "pending" {
				t.Errorf("between the attempts the repository is %s", sync.State)
			}
			if e := r.ended(); e.Type != jobs.EventCompleted || e.State != "success" || e.Attempt != 2 {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestPassing(t *testing.T) {
	t.Parallel()
	for kind, want := range map[git.Kind]bool{
		git.Unreachable: true, git.Timeout: true, git.Moved: true,
		git.Auth: false, git.NotFound: false, git.BranchNotFound: false, git.PathNotFound: false, git.Empty: false, git.Cancelled: false,
		git.TooLarge: false, git.Corrupt: false, git.Protocol: false, git.Refused: false, git.Unknown: false,
	} {
		err := passing(fmt.Errorf("fetch: %w", &git.Error{Kind: kind, Err: errors.New("x"), RetryAfter: time.Minute}))
		var again *jobs.TransientError
		if got := errors.As(err, &again); got != want || want && again.After != time.Minute || !errors.As(err, new(*git.Error)) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for kind, want := range map[netx.ErrorKind]bool{
		netx.Unavailable: true, netx.RateLimited: true, netx.Protocol: true, netx.Unauthorized: false, netx.Forbidden: false,
		netx.NotFound: false, netx.Invalid: false, netx.Refused: false,
	} {
		var again *jobs.TransientError
		if got := errors.As(passing(fmt.Errorf("look up: %w", &netx.Error{Kind: kind, Err: errors.New("x")})), &again); got != want {
			t.Errorf("%s: passing is %v", kind, got)
		}
	}
	if plain := errors.New("x"); passing(plain) != plain || passing(nil) != nil {
		t.Error("an error that is not Git's was changed")
	}
}
