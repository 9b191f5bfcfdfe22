package admission

import (
	"strings"
	"testing"
)

// TestConnectionMovesWithoutItsSecrets: a secret that was given for one server is not kept for
// another.
func TestConnectionMovesWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	const (
		lab   = "kind: Connection\nspec: {title: Lab, type: gitlab, url: https://git.example.com}\n"
		house = "kind: Connection\nspec: {title: House, type: githubEnterprise, githubEnterprise: {appID: \"1\", installationID: \"2\", serverUrl: https://ghe.example.com}}\n"
		hub   = "kind: Connection\nspec: {title: Hub, type: github, github: {appID: \"1\", installationID: \"2\"}}\n"
		token = "secure: {token: {name: inline-1}}\n"
		key   = "secure: {privateKey: {name: inline-1}}\n"
	)
	elsewhere := strings.Replace(lab, "git.example.com", "evil.example.com", 1)
	for _, c := range []struct {
		name, old, now string
		refused        string // the field; "" = taken
	}{
		{"the same", lab + token, lab + token, ""},
		{"a page of the same server", lab + token, strings.Replace(lab, "git.example.com", "GIT.example.com:443/group", 1) + token, ""},
		{"another host", lab + token, elsewhere + token, "secure.token.create"},
		{"a slash at its end", lab + token, strings.Replace(lab, "git.example.com", "git.example.com/", 1) + token, ""},
		{"another port", lab + token, strings.Replace(lab, "git.example.com", "git.example.com:8443", 1) + token, "secure.token.create"},
		{"without TLS", lab + token, strings.Replace(lab, "https:", "http:", 1) + token, "secure.token.create"},
		{"the host of the type in place of one", lab + token, strings.Replace(lab, ", url: https://git.example.com", "", 1) + token,
			"secure.token.create"},
		{"another host, and the stored name given again beside remove", lab + token,
			elsewhere + "secure: {token: {name: inline-1, remove: true}}\n", ""},
		{"another host and a new secret", lab + token, elsewhere + "secure: {token: {create: fresh}}\n", ""},
		{"another host and another Secret", lab + token, elsewhere + "secure: {token: {name: of-the-other}}\n", ""},
		{"another host, nothing stored", lab, elsewhere, ""},
		{"another host, secure left out", lab + token, elsewhere, "secure.token.create"},
		{"another type at the same host", lab + token, strings.Replace(lab, "gitlab", "bitbucket", 1) + token, "secure.token.create"},
		{"another serverUrl", house + key, strings.Replace(house, "ghe.example.com", "evil.example.com", 1) + key, "secure.privateKey.create"},
		{"the default written out", hub + key, strings.Replace(hub, "type: github,", "type: github, url: https://github.com/apps/x,", 1) + key,
			""},
	} {
		errs := Check(object(t, c.now), object(t, c.old))
		switch {
		case c.refused == "" && len(errs) > 0:
			t.Errorf("%s: %v", c.name, errs)
		case c.refused != "" && (len(errs) != 1 || errs[0].Field != c.refused):
			t.Errorf("%s: %v, want %s", c.name, errs, c.refused)
		}
	}
}
