package checkout

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/netx"
)

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

// TestRemoteWithoutToken: what is wrong with the host of a Connection is told as what is wrong with
// a remote.
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
		_, err := Source{Credentials: from}.Remote(t.Context(), "default", "site", repo)
		if e, ok := errors.AsType[*git.Error](err); !ok || e.Kind != want || e.RetryAfter != time.Minute {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
	}
	other := auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) { return nil, errors.New("a file") })
	if _, err := (Source{Credentials: other}).Remote(t.Context(), "default", "site", repo); git.KindOf(err) != git.Auth {
		t.Errorf("%v", err)
	}
}

// TestLookupsOfMirrors: what belongs to a Repository is looked up for its own host only; a mirror
// elsewhere is asked about by its URL and by nothing else.
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
	r, err := Source{Credentials: from}.Remote(t.Context(), "ns", "site", repo)
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
	if _, err := (Source{Credentials: from}).Remote(t.Context(), "ns", "site", repo); git.KindOf(err) != git.Refused {
		t.Errorf("a wrong list: %v", err)
	}
}

// TestNoTokenAndMirrors: who makes the token may be away as the host is; a refusal is one all the
// same, and so is the API being away.
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
			r, err := Source{Credentials: from}.Remote(t.Context(), "ns", "site", one)
			if down := c.down && mirrors != ""; (err == nil) != down || (r.Down != nil) != down {
				t.Errorf("%v with mirrors %q: %+v, %v", c.why, mirrors, r, err)
			}
		}
	}
}
