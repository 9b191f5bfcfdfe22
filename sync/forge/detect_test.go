package forge

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/netx"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	h := New(Options{APIs: map[string]string{"mirror.example": "https://mirror.example/github/"}})
	cases := []struct {
		name   string
		target Target
		kind   Kind
		api    string
		path   string
		none   bool
		wrong  bool
	}{
		{name: "github", target: Target{Type: "github", URL: "https://github.com/team/site"}, kind: GitHub, api: "https://api.github.com",
			path: "team/site"},
		{name: "github with suffix and slash", target: Target{Type: "github", URL: "https://GitHub.com/team/site.git/"}, kind: GitHub,
			api: "https://api.github.com", path: "team/site"},
		{name: "github page", target: Target{Type: "github", URL: "https://github.com/team/site/tree/main"}, wrong: true},
		{name: "github owner only", target: Target{Type: "github", URL: "https://github.com/team"}, wrong: true},
		{name: "github elsewhere", target: Target{Type: "github", URL: "https://git.example:8443/team/site"}, kind: GitHub,
			api: "https://git.example:8443/api/v3", path: "team/site"},
		{name: "data residency", target: Target{Type: "github", URL: "https://acme.ghe.com/team/site"}, kind: GitHub,
			api: "https://api.acme.ghe.com", path: "team/site"},
		{name: "proxy", target: Target{Type: "github", URL: "https://mirror.example/team/site"}, kind: GitHub,
			api: "https://mirror.example/github", path: "team/site"},
		{name: "enterprise", target: Target{Type: "githubEnterprise", URL: "https://ghe.example/team/site", ServerURL: "https://ghe.example/"},
			kind: GitHubEnterprise, api: "https://ghe.example/api/v3", path: "team/site"},
		{name: "enterprise, api given", target: Target{Type: "githubEnterprise", URL: "https://ghe.example/team/site",
			ServerURL: "https://ghe.example/api/v3/"}, kind: GitHubEnterprise, api: "https://ghe.example/api/v3", path: "team/site"},
		{name: "enterprise without server", target: Target{Type: "githubEnterprise", URL: "https://ghe.example/team/site"},
			kind: GitHubEnterprise, api: "https://ghe.example/api/v3", path: "team/site"},
		{name: "enterprise at another host", target: Target{Type: "githubEnterprise", URL: "https://ghe.example/team/site",
			ServerURL: "https://evil.example"}, wrong: true},
		{name: "enterprise with a user", target: Target{Type: "githubEnterprise", URL: "https://ghe.example/team/site",
			ServerURL: "https://u:p@ghe.example"}, wrong: true},
		{name: "gitlab subgroups", target: Target{Type: "gitlab", URL: "https://gitlab.com/a/b/c/site.git"}, kind: GitLab,
			api: "https://gitlab.com/api/v4", path: "a/b/c/site"},
		{name: "gitlab own", target: Target{Type: "gitlab", URL: "http://127.0.0.1:8080/a/site"}, kind: GitLab,
			api: "http://127.0.0.1:8080/api/v4", path: "a/site"},
		{name: "bitbucket", target: Target{Type: "bitbucket", URL: "https://bitbucket.org/work/site"}, kind: Bitbucket,
			api: "https://api.bitbucket.org/2.0", path: "work/site"},
		{name: "bitbucket data center", target: Target{Type: "bitbucket", URL: "https://bitbucket.example/scm/team/site.git"}, none: true},
		{name: "plain git at github", target: Target{Type: "git", URL: "https://github.com/team/site.git"}, kind: GitHub,
			api: "https://api.github.com", path: "team/site"},
		{name: "plain git at codeberg over ssh", target: Target{Type: "git", URL: "git@codeberg.org:team/site.git"}, kind: Gitea,
			api: "https://codeberg.org/api/v1", path: "team/site"},
		{name: "ssh with a port", target: Target{Type: "git", URL: "ssh://git@git.example:2222/team/site.git", Forge: "forgejo"}, kind: Gitea,
			api: "https://git.example/api/v1", path: "team/site"},
		{name: "gitea below a path", target: Target{Type: "git", URL: "https://git.example/some%20tools/gitea/team/site.git", Forge: "gitea"},
			kind: Gitea, api: "https://git.example/some%20tools/gitea/api/v1", path: "team/site"},
		{name: "annotation in other case", target: Target{Type: "git", URL: "https://git.example/a/b/c", Forge: "GitLab"}, kind: GitLab,
			api: "https://git.example/api/v4", path: "a/b/c"},
		{name: "annotation none", target: Target{Type: "git", URL: "https://github.com/team/site", Forge: "none"}, none: true},
		{name: "annotation wrong", target: Target{Type: "git", URL: "https://github.com/team/site", Forge: "gogs"}, wrong: true},
		{name: "azure", target: Target{Type: "git", URL: "https://dev.azure.com/org/project/_git/site"}, none: true},
		{name: "codecommit", target: Target{Type: "git", URL: "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/site"}, none: true},
		{name: "local", target: Target{Type: "git", URL: "/srv/git/site.git"}, none: true},
		{name: "type local", target: Target{Type: "local", URL: "https://git.example/a/b"}, none: true},
		{name: "no url", target: Target{Type: "github"}, wrong: true},
	}
	for _, c := range cases {
		p, err := h.locate(t.Context(), c.target, nil)
		switch {
		case c.none:
			if !errors.Is(err, ErrNone) {
				t.Errorf("%s: %+v %v, want ErrNone", c.name, p, err)
			}
		case c.wrong:
			if netx.KindOf(err) != netx.Invalid {
				t.Errorf("%s: %+v %v, want a refusal", c.name, p, err)
			}
		case err != nil || p.Kind != c.kind || p.API != c.api || p.Path != c.path:
			t.Errorf("%s: %+v %v, want %s %s %s", c.name, p, err, c.kind, c.api, c.path)
		}
	}
}

func TestTargetOf(t *testing.T) {
	t.Parallel()
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{AnnoForge: "none"}},
		"spec": map[string]any{"type": "bitbucket", "bitbucket": map[string]any{"url": "https://bitbucket.org/a/b", "email": "a@b.example"},
			"github": map[string]any{"url": "https://github.com/c/d"}}}}
	if got, want := TargetOf(u), (Target{Type: "bitbucket", URL: "https://bitbucket.org/a/b", Email: "a@b.example",
		Forge: "none"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := TargetOf(&unstructured.Unstructured{Object: map[string]any{}}); got != (Target{}) {
		t.Errorf("%+v of an empty object", got)
	}
}
