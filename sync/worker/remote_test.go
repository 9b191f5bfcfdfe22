package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/netx"
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
		err := NewPull(PullOptions{Credentials: c.from}).Ready(t.Context(), jobs.Task{Namespace: "default", Repo: u, Repository: c.repo})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
	if err := NewPull(PullOptions{}).Ready(t.Context(), jobs.Task{}); err != nil {
		t.Errorf("a job without a repository: %v", err)
	}
}

func TestSourceOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, url, want, user, wantUser string }{
		{"git", "https://h/o/r", "https://h/o/r", "", ""},
		{"git", "https://h/o/r.git/", "https://h/o/r.git", "grafana", "grafana"},
		{"github", "https://github.com/o/r", "https://github.com/o/r.git", "", ""},
		{"gitlab", "https://gitlab.com/o/r/", "https://gitlab.com/o/r.git", "", "oauth2"},
		{"bitbucket", "https://bitbucket.org/o/r.git", "https://bitbucket.org/o/r.git", "", "x-token-auth"},
		{"bitbucket", "https://bitbucket.org/o/r", "https://bitbucket.org/o/r.git", "me", "me"},
		{"github", "https://dev.azure.com/o/p/_git/r", "https://dev.azure.com/o/p/_git/r", "", ""},
	} {
		block := &api.GitBlock{URL: c.url, TokenUser: c.user, Path: "/a/b/", Branch: "refs/heads/main"}
		s, err := sourceOf("ns", "repo", api.Repository{Spec: api.RepositorySpec{Type: c.kind, Git: block, GitHub: block, GitLab: block,
			Bitbucket: block}})
		if err != nil || s.url != c.want || s.lookup.TokenUser != c.wantUser || s.dir != "a/b" || s.sel.Branch != "main" || s.wrong != nil {
			t.Errorf("%s %s: %+v, %v", c.kind, c.url, s, err)
		}
	}
}

// TestRemoteWithoutToken: what is wrong with the host of a Connection is told as what is wrong with a remote.
func TestRemoteWithoutToken(t *testing.T) {
	t.Parallel()
	var repo api.Repository
	repo.Spec.Type, repo.Spec.GitHub = "github", &api.GitBlock{URL: "https://github.com/team/site"}
	for kind, want := range map[netx.ErrorKind]git.Kind{
		netx.Unauthorized: git.Auth, netx.Forbidden: git.Auth, netx.NotFound: git.NotFound, netx.RateLimited: git.Throttled,
		netx.Unavailable: git.Unreachable, netx.Protocol: git.Unreachable, netx.Invalid: git.Refused, netx.Refused: git.Refused,
	} {
		from := auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			return nil, &netx.Error{Kind: kind, Err: errors.New("x"), RetryAfter: time.Minute}
		})
		_, err := Remotes{Credentials: from}.Remote(t.Context(), "default", "site", repo)
		if e, ok := errors.AsType[*git.Error](err); !ok || e.Kind != want || e.RetryAfter != time.Minute {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
		passes := kind == netx.Unavailable || kind == netx.RateLimited || kind == netx.Protocol
		var again *jobs.TransientError
		if got := errors.As(passing(fmt.Errorf("look up: %w", &netx.Error{Kind: kind, Err: errors.New("x")})), &again); got != passes {
			t.Errorf("%s: passing is %v", kind, got)
		}
	}
	other := auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) { return nil, errors.New("a file") })
	if _, err := (Remotes{Credentials: other}).Remote(t.Context(), "default", "site", repo); git.KindOf(err) != git.Auth {
		t.Errorf("%v", err)
	}
}

// TestLookupsOfMirrors: what belongs to a Repository is looked up for its own host only; a mirror elsewhere is asked
// about by its URL and by nothing else.
func TestLookupsOfMirrors(t *testing.T) {
	t.Parallel()
	repo := api.Repository{GitMirrors: "https://b.example.com/site.git, https://A.example.com:443/copy.git http://a.example.com/copy.git",
		GitProvider: "azure", GitProxySecret: "way", Secure: map[string]api.SecureValue{"token": {Name: "key"}},
		Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://a.example.com/site.git", TokenUser: "ann"}, Connection: &struct {
			Name string `json:"name"`
		}{"app"}}}
	repo.Status.Sync.LastRef = "0123456789012345678901234567890123456789"
	var seen []auth.Lookup
	from := auth.Source(func(_ context.Context, l auth.Lookup) (*auth.Credentials, error) {
		seen = append(seen, l)
		return &auth.Credentials{Username: "u", Password: "p"}, nil
	})
	r, err := Remotes{Credentials: from}.Remote(t.Context(), "ns", "site", repo)
	if err != nil || len(r.Fallbacks) != 3 || len(seen) != 1 || r.LastSynced != repo.Status.Sync.LastRef || r.Down != nil {
		t.Fatalf("%+v, %v, %d look-ups", r, err, len(seen))
	}
	own := seen[0]
	for _, s := range r.Fallbacks {
		if _, err := s.Credentials(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	copied := own
	copied.URL = "https://A.example.com:443/copy.git"
	for i, want := range []auth.Lookup{{Namespace: "ns", URL: "https://b.example.com/site.git"}, copied,
		{Namespace: "ns", URL: "http://a.example.com/copy.git"}} {
		if got := seen[i+1]; !reflect.DeepEqual(got, want) {
			t.Errorf("mirror %d: %+v, want %+v", i+1, got, want)
		}
	}
	if own.Connection != "app" || own.ProxySecret != "way" || own.Provider != "azure" || own.Secure["token"] != "key" {
		t.Errorf("%+v", own)
	}
	if got := URLs(repo); len(got) != 4 || got[0] != "https://a.example.com/site.git" {
		t.Errorf("%q", got)
	}
	repo.GitMirrors = "nonsense"
	if _, err := (Remotes{Credentials: from}).Remote(t.Context(), "ns", "site", repo); git.KindOf(err) != git.Refused {
		t.Errorf("a wrong list: %v", err)
	}
}

// TestNoTokenAndMirrors: who makes the token may be away as the host is; a refusal is one all the same, and so is the
// API being away.
func TestNoTokenAndMirrors(t *testing.T) {
	t.Parallel()
	repo := api.Repository{GitMirrors: "https://b.example.com/site.git",
		Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://a.example.com/site.git"}}}
	for _, c := range []struct {
		why  error
		down bool
	}{
		{&netx.Error{Kind: netx.Unavailable, Err: errors.New("503")}, true},
		{&netx.Error{Kind: netx.Unauthorized, Err: errors.New("401")}, false},
		{&netx.Error{Kind: netx.RateLimited, Err: errors.New("429")}, false},
		{errors.New("the file is open to all"), false},
		{&kube.UnavailableError{Err: errors.New("no route")}, false},
	} {
		from := auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) { return nil, c.why })
		for _, mirrors := range []string{"", repo.GitMirrors} {
			one := repo
			one.GitMirrors = mirrors
			r, err := Remotes{Credentials: from}.Remote(t.Context(), "ns", "site", one)
			if down := c.down && mirrors != ""; (err == nil) != down || (r.Down != nil) != down {
				t.Errorf("%v with mirrors %q: %+v, %v", c.why, mirrors, r, err)
			}
		}
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
	if plain := errors.New("x"); passing(plain) != plain || passing(nil) != nil {
		t.Error("an error that is not Git's was changed")
	}
}
