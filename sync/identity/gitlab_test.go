package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"limpet/sync/netx"
)

// full is a vault that may have no room.
type full struct {
	memory
	full bool
}

func (f *full) PutSecret(ctx context.Context, name string, plain []byte) error {
	if f.full {
		return errors.New("no space left on device")
	}
	return f.memory.PutSecret(ctx, name, plain)
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
	here(t, "gitlab", "https://gitlab.com/team/site.git").with("gitlabAppID", "1").refuses(t, netx.Invalid, "gitlabAppRefreshToken")
}

// TestGitLabRefresh: each refresh token is good once, and the next one outlives a
// restart.
func TestGitLabRefresh(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	valid, n := "refresh-0-"+canary, 0
	c.on("POST /oauth/token", func(w http.ResponseWriter, _ *http.Request, form url.Values) {
		if form.Get("refresh_token") != valid {
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":"invalid_grant","error_description":"The provided authorization grant %s is invalid"}`,
				form.Get("refresh_token"))
			return
		}
		n++
		valid = fmt.Sprintf("refresh-%d-%s", n, canary)
		fmt.Fprintf(w, `{"access_token":"access-%d-%s","token_type":"Bearer","expires_in":7200,"refresh_token":%q,"scope":"read_repository","created_at":1607635748}`, n, canary, valid)
	})
	request := func(n int) string {
		return fmt.Sprintf("POST /oauth/token\nContent-Type: application/x-www-form-urlencoded\nclient_id=app-1\nclient_secret=secret-%[1]s\ngrant_type=refresh_token\nredirect_uri=https://limpet.example.com/\nrefresh_token=refresh-%[2]d-%[1]s", canary, n)
	}
	p := here(t, "", c.URL+"/team/site.git").with("gitlabAppID", "app-1", "gitlabAppSecret", "secret-"+canary, "gitlabAppRedirectUrl",
		"https://limpet.example.com/", "gitlabAppRefreshToken", valid)
	for i := range 3 {
		got := p.must(t)
		if got.Username != "oauth2" || got.Password != fmt.Sprintf("access-%d-%s", i+1, canary) {
			t.Fatalf("user %q, password %q", got.Username, got.Password)
		}
		p.must(t) // from memory
		equal(t, "requests", c.requests(), []string{request(i)})
		p.restart(t)
	}
	for name := range p.vault.(memory) {
		if strings.Contains(name, canary) {
			t.Errorf("the name %q holds a secret", name)
		}
	}
	// The same keys at another place are the same authorization.
	p.must(t)
	c.requests()
	p.owner, p.lookup.Provider = true, "gitlab"
	p.must(t)
	equal(t, "requests of another place", c.requests(), nil)
	p.owner, p.lookup.Provider = false, ""
	p.restart(t)
	// A full disk: the next one is in memory until there is room.
	disk := p.vault
	p.vault = &full{memory: disk.(memory), full: true}
	p.restart(t)
	p.must(t).Refused()
	p.must(t)
	p.vault.(*full).full = false
	p.must(t)
	p.vault = disk
	p.restart(t)
	p.must(t)
	equal(t, "requests around a full disk", c.requests(), []string{request(4), request(5), request(6)})
	// A person authorizes anew: what was given counts again.
	valid = "refresh-9-" + canary
	p.keys["gitlabAppRefreshToken"] = []byte(valid)
	p.must(t)
	equal(t, "requests with another token", c.requests(), []string{request(9)})
	valid = "revoked"
	p.restart(t)
	p.refuses(t, netx.Unauthorized, "GitLab application app-1", "invalid_grant", "[redacted]")
	p.vault = nil
	p.restart(t)
	p.refuses(t, netx.Invalid, "no place to store")
}
