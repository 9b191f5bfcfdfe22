package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
)

// TestReady: who may run which job, without a server.
func TestReady(t *testing.T) {
	t.Parallel()
	secret := func(name string) map[string]api.SecureValue { return map[string]api.SecureValue{"token": {Name: name}} }
	token := auth.SourceFunc(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{Username: "git", Password: "s3cr3t"}, nil
	})
	repo := func(kind string, change func(*api.Repository)) api.Repository {
		block := &api.GitBlock{URL: "https://git.example.com/o/r"}
		v := api.Repository{Spec: api.RepositorySpec{Type: kind, Sync: api.SyncSpec{Enabled: true}, Git: block, GitHub: block, GitLab: block, Bitbucket: block, Local: block}}
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
		{"no token", repo("github", func(r *api.Repository) { r.Secure = secret("inline-1") }), auth.Chain(), `secure.token is the secret "inline-1"`},
		{"where to put it", repo("gitlab", func(r *api.Repository) { r.Secure = secret("x") }), nil, "default.repo/token below --credentials-dir"},
		{"connection", repo("github", func(r *api.Repository) {
			r.Spec.Connection = &struct {
				Name string `json:"name"`
			}{Name: "app"}
		}), nil, `connection "app"`},
		{"local", repo("local", nil), nil, `type "local"`},
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
		s, err := sourceOf("ns", "repo", api.Repository{Spec: api.RepositorySpec{Type: c.kind, Git: block, GitHub: block, GitLab: block, Bitbucket: block}})
		if err != nil || s.url != c.want || s.lookup.TokenUser != c.wantUser || s.dir != "a/b" || s.sel.Branch != "main" || s.wrong != nil {
			t.Errorf("%s %s: %+v, %v", c.kind, c.url, s, err)
		}
	}
}

// TestRemoteWithoutToken: what is wrong with the host of a Connection is told as
// what is wrong with a remote.
func TestRemoteWithoutToken(t *testing.T) {
	t.Parallel()
	var repo api.Repository
	repo.Spec.Type, repo.Spec.GitHub = "github", &api.GitBlock{URL: "https://github.com/team/site"}
	for kind, want := range map[forge.ErrorKind]git.Kind{
		forge.Unauthorized: git.Auth, forge.Forbidden: git.Auth, forge.NotFound: git.NotFound, forge.RateLimited: git.Throttled,
		forge.Unavailable: git.Unreachable, forge.Protocol: git.Unreachable, forge.Invalid: git.Refused, forge.Refused: git.Refused,
	} {
		from := auth.SourceFunc(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			return nil, &forge.Error{Kind: kind, Err: errors.New("x"), RetryAfter: time.Minute}
		})
		_, err := Remote(t.Context(), "default", "site", repo, from, false)
		if e, ok := errors.AsType[*git.Error](err); !ok || e.Kind != want || e.RetryAfter != time.Minute {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
		passes := kind == forge.Unavailable || kind == forge.RateLimited || kind == forge.Protocol
		var again *jobs.TransientError
		if got := errors.As(passing(fmt.Errorf("look up: %w", &forge.Error{Kind: kind, Err: errors.New("x")})), &again); got != passes {
			t.Errorf("%s: passing is %v", kind, got)
		}
	}
	other := auth.SourceFunc(func(context.Context, auth.Lookup) (*auth.Credentials, error) { return nil, errors.New("a file") })
	if _, err := Remote(t.Context(), "default", "site", repo, other, false); git.KindOf(err) != git.Auth {
		t.Errorf("%v", err)
	}
}
