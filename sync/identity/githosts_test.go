package identity

import (
	"encoding/base64"
	"strings"
	"testing"

	"limpet/sync/netx"
	"limpet/sync/testenv/forgetest"
)

func TestGitHubApp(t *testing.T) {
	t.Parallel()
	host := forgetest.New(t, forgetest.Options{})
	app := host.App(t, "12", map[string]*forgetest.Installation{
		"34": {Account: "team", Repositories: []string{"site", "other"}, Permissions: forgetest.AllPermissions()},
		"56": {Account: "ann", User: true, Repositories: []string{"site"}, Permissions: forgetest.AllPermissions()}})
	host.Add("team/site", forgetest.Repository{})
	key, base := string(app.Key), host.URL+"/api/v3/"
	for name, test := range map[string]struct {
		path string
		keys []string
		asks []string
	}{
		"as shipped": {"team/site", []string{"githubAppID", "12", "githubAppInstallationID", "34", "githubAppPrivateKey", key,
			"githubAppBaseURL", base}, []string{"POST /app/installations/34/access_tokens"}},
		"as in the RFC": {"team/site", []string{"githubAppID", "12\n", "githubInstallationID", "34", "githubPrivateKey",
			base64.StdEncoding.EncodeToString([]byte(key)), "githubApiURl", base}, []string{"POST /app/installations/34/access_tokens"}},
		"organization": {"team/other", []string{"githubAppID", "12", "githubAppInstallationOwner", "team", "githubAppPrivateKey", key,
			"githubAppBaseURL", base},
			[]string{"GET /orgs/team/installation", "POST /app/installations/34/access_tokens"}},
		"person": {"ann/site", []string{"githubAppID", "12", "githubAppInstallationOwner", "ann", "githubAppPrivateKey", key, "githubAppBaseURL",
			base},
			[]string{"GET /orgs/ann/installation", "GET /users/ann/installation", "POST /app/installations/56/access_tokens"}},
	} {
		host.Requests()
		p := here(t, "", host.URL+"/"+test.path+".git").with(test.keys...)
		got := p.must(t)
		if !host.Accepts(got.Username, got.Password, test.path) {
			t.Errorf("%s: the host does not take %s", name, got.Username)
		}
		p.lookup.URL += "/other" // one token for the installation
		p.must(t)
		asked := host.Requests()
		for i := range asked {
			asked[i] = strings.Replace(asked[i], "/api/v3", "", 1)
		}
		equal(t, name, asked, test.asks)
	}
	ok := []string{"githubAppID", "12", "githubAppInstallationID", "34", "githubAppPrivateKey", key, "githubAppBaseURL", base}
	at := host.URL + "/team/site.git"
	here(t, "", at).with(append(ok, "githubAppInstallationOwner", "team")...).refuses(t, netx.Invalid, "exactly one of")
	here(t, "", at).with("githubAppID", "12", "githubAppPrivateKey", key).refuses(t, netx.Invalid, "exactly one of")
	here(t, "", at).with("githubAppID", "12", "githubAppInstallationID", "34").refuses(t, netx.Invalid, "githubAppPrivateKey is missing")
	here(t, "", at).with(append(ok[:8:8], "githubAppPrivateKey", canary)...).refuses(t, netx.Invalid, "githubAppPrivateKey cannot be used")
	here(t, "", at).with(ok[:6]...).refuses(t, netx.Invalid, "api.github.com", "githubAppBaseURL")
	here(t, "", "https://evil.example.com/team/site.git").with(ok...).refuses(t, netx.Invalid, "evil.example.com")
	here(t, "", at).with("githubAppID", "12", "githubAppInstallationOwner", "nobody", "githubAppPrivateKey", key, "githubAppBaseURL", base).
		refuses(t, netx.NotFound, "/orgs/nobody/installation", "/orgs/nobody/installation", "GitHub App 12 of secret default/keys")
	here(t, "", at).with("githubAppID", "13", "githubAppInstallationID", "34", "githubAppPrivateKey", key, "githubAppBaseURL", base).
		refuses(t, netx.Unauthorized, "GitHub App 13, installation 34, of secret default/keys", "/app/installations/34/access_tokens")
	if _, err := here(t, "azure", devops).with(ok...).credentials(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "githubAppID is a key of provider github, and the provider is azure") {
		t.Errorf("keys of another provider: %v", err)
	}
	if _, err := here(t, "generic", at).with(ok...).credentials(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "the provider is generic") {
		t.Errorf("keys of a provider where none is wanted: %v", err)
	}
	here(t, "githup", at).with(ok...).refuses(t, netx.Invalid, `did you mean "github"`)
}

func TestGitLabTokens(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keys []string
		user string
	}{
		"deploy token":   {[]string{"username", "gitlab+deploy-token-1", "password", canary}, "gitlab+deploy-token-1"},
		"personal token": {[]string{"token", canary + "\n"}, "oauth2"},
		"oauth token":    {[]string{"bearerToken", canary}, "oauth2"},
	} {
		if got := here(t, "gitlab", "https://gitlab.com/team/site.git").with(test.keys...).must(t); got.Username != test.user ||
			got.Password != canary || got.Bearer != "" {
			t.Errorf("%s: user %q, password %q, bearer %q", name, got.Username, got.Password, got.Bearer)
		}
	}
	here(t, "gitlab", "https://gitlab.com/team/site.git").refuses(t, netx.Invalid, "has no such identity")
}
