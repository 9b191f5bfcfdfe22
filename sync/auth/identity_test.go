package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lookupIn asks one place for credentials.
func lookupIn(t *testing.T, s Source, provider, url string) (*Credentials, error) {
	t.Helper()
	return s(t.Context(), Lookup{Namespace: "default", Repository: "site", URL: url, Provider: provider,
		Secure: map[string]string{"token": "keys"}})
}

func secretOf(keys ...string) Source {
	data := map[string][]byte{}
	for i := 0; i+1 < len(keys); i += 2 {
		data[keys[i]] = []byte(keys[i+1])
	}
	return secretsAt(func(context.Context, string, string) (map[string][]byte, error) { return data, nil }).Credentials
}

// TestProviderIsChosen: by the keys, by the Repository, by a rule; they may not
// contradict each other.
func TestProviderIsChosen(t *testing.T) {
	t.Parallel()
	const https = "https://git.example.com/x"
	for name, test := range map[string]struct {
		source         Source
		provider, url  string
		want           string // provider; "" = plain credentials
		trusted        bool
		fails, because string
	}{
		"keys":        {source: secretOf("gcpServiceAccount", canary), want: "gcp"},
		"app":         {source: secretOf("githubAppID", "1", "githubAppPrivateKey", canary), want: "github"},
		"repository":  {source: secretOf("ca.crt", "x"), provider: "azure", want: "azure"},
		"gitlab":      {source: secretOf("username", "deploy", "password", canary), provider: "gitlab", want: "gitlab"},
		"plain":       {source: secretOf("username", "ann", "password", canary)},
		"generic":     {source: secretOf("username", "ann", "password", canary), provider: "generic"},
		"rule":        {source: rulesAt([]Rule{{URL: https, Provider: "azure"}}).Credentials, want: "azure", trusted: true},
		"rule agrees": {source: rulesAt([]Rule{{URL: https, Provider: "azure"}}).Credentials, provider: "azure", want: "azure", trusted: true},
		"another provider": {source: secretOf("gcpServiceAccount", canary), provider: "azure",
			fails: "gcpServiceAccount is a key of provider gcp, and the provider is azure"},
		"keys without": {source: secretOf("githubAppID", "1"), provider: "generic", fails: "the provider is generic"},
		"two providers": {source: secretOf("gcpServiceAccount", canary, "AWS_ACCESS_KEY_ID", "x"),
			fails: "AWS_ACCESS_KEY_ID is a key of provider aws, and gcpServiceAccount one of gcp"},
		"rule and another": {source: rulesAt([]Rule{{URL: https, Provider: "azure"}}).Credentials, provider: "gcp",
			fails: "they are for provider azure, and the repository asks for gcp"},
		"token beside it": {source: secretOf("token", canary), provider: "azure", fails: "token has no meaning for provider azure"},
		"ssh": {source: secretOf("gcpServiceAccount", canary), url: "ssh://git@git.example.com/x",
			fails: "is for https, and the url is of ssh"},
		"half a certificate": {source: secretOf("gcpServiceAccount", canary, "tls.crt", "x"), fails: "tls.crt and tls.key"},
		"former keys":        {source: secretOf("AWS_CONTAINER_CREDENTIALS_FULL_URI", "x"), provider: "aws", fails: "key AWS_CONTAINER_CREDENTIALS_FULL_URI is not supported"},
		"too long":           {source: secretOf("gcpServiceAccount", strings.Repeat("x", maxValue+1)), fails: "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			url := test.url
			if url == "" {
				url = https
			}
			c, err := lookupIn(t, test.source, test.provider, url)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) || strings.Contains(err.Error(), canary) {
					t.Fatalf("error %v, want one with %q", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.want == "" && c.Identity != nil:
				t.Errorf("it is an identity: %v", c)
			case test.want != "" && (c.Identity == nil || c.Identity.Provider != test.want || c.Identity.Trusted != test.trusted ||
				c.Identity.Bound != test.trusted || c.Empty()):
				t.Errorf("it is %v, %v", c, c.Identity)
			}
			if c.Identity != nil {
				for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s"} {
					if text := fmt.Sprintf(verb+verb+verb, c, c.Identity, *c.Identity); strings.Contains(text, canary) ||
						strings.Contains(text, fmt.Sprintf("%x", canary)) {
						t.Errorf("%s shows a secret: %s", verb, text)
					}
				}
				if data, _ := c.Identity.MarshalJSON(); strings.Contains(string(data), canary) {
					t.Errorf("JSON shows a secret: %s", data)
				}
			}
		})
	}
}

// TestIdentityInDirectory: what lies in a credentials directory is trusted.
func TestIdentityInDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "default.site"), 0o700),
		os.WriteFile(filepath.Join(dir, "default.site", "gcpServiceAccount"), []byte(canary), 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := lookupIn(t, filesAt(dir).Credentials, "", "https://git.example.com/x")
	if err != nil || c.Identity == nil || !c.Identity.Trusted || c.Identity.Bound || c.Identity.Own() ||
		c.Identity.Text("gcpServiceAccount") != canary {
		t.Errorf("%v %v", c, err)
	}
	same, err := lookupIn(t, secretOf("gcpServiceAccount", canary), "", "https://git.example.com/x")
	if err != nil || same.Fingerprint() != c.Fingerprint() {
		t.Errorf("the same key elsewhere has another fingerprint: %v", err)
	}
	other, err := lookupIn(t, secretOf("gcpServiceAccount", canary+"2"), "", "https://git.example.com/x")
	if err != nil || other.Fingerprint() == c.Fingerprint() {
		t.Errorf("another key has the same fingerprint: %v", err)
	}
}

func TestRuleOfProvider(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule Rule
		want string // "" = it is right
	}{
		"identity of the host": {Rule{Provider: "azure"}, ""},
		"its keys":             {Rule{Provider: "github", Values: map[string]string{"githubAppID": "1"}}, ""},
		"keys alone":           {Rule{Values: map[string]string{"githubAppID": "1"}}, ""},
		"no provider, no key":  {Rule{Provider: "generic"}, "gives no key"},
		"misspelt":             {Rule{Provider: "azrue"}, `unknown git provider "azrue", did you mean "azure"?`},
		"unknown":              {Rule{Provider: "mercurial-cloud"}, "known are generic, aws, azure, gcp, github, gitlab"},
		"misspelt key":         {Rule{Provider: "github", Values: map[string]string{"githubAppId": "1"}}, `did you mean "githubAppID"?`},
		"key of another": {Rule{Provider: "aws", Values: map[string]string{"githubAppID": "1"}},
			"githubAppID has no meaning for provider aws"},
	} {
		test.rule.URL = "https://git.example.com"
		switch err := test.rule.Check(); {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
