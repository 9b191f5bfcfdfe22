package auth

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/sync/signature"
)

func readSpec(t *testing.T, text string) (GitRepository, error) {
	t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return ReadGitRepository("apps", "site", spec)
}

// TestReadGitRepository: each form that the spec of Flux has, and each that it has not.
func TestReadGitRepository(t *testing.T) {
	t.Parallel()
	const at = `"url":"https://git.example.com/ops/x.git"`
	for text, want := range map[string]GitRepository{
		`{` + at + `}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x.git", Provider: Generic}},
		`{` + at + `,"secretRef":{"name":"keys"},"proxySecretRef":{"name":"way.out"},"serviceAccountName":""}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x.git", Provider: Generic, ProxySecret: "way.out", Secure: map[string]string{"secretRef": "keys"}}, Secret: "keys"},
		`{` + at + `,"provider":"azure","secretRef":null,"verify":null}`:                                       {Lookup: Lookup{URL: "https://git.example.com/ops/x.git", Provider: "azure"}},
		`{` + at + `,"provider":"gcp"}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x.git",
			Provider: "gcp"}, Warnings: []string{"provider gcp is served by limpet, the definition of Flux refuses it"}},
		`{` + at + `,"verify":{"secretRef":{"name":"signers"}}}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x.git",
			Provider: Generic}, Verify: signature.HEAD, Signers: "signers"},
		`{` + at + `,"verify":{"mode":"head","secretRef":{"name":"s"}}}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x.git",
			Provider: Generic}, Verify: signature.HEAD, Signers: "s"},
		`{` + at + `,"verify":{"mode":"TagAndHEAD","secretRef":{"name":"s"}}}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x.git",
			Provider: Generic}, Verify: signature.TagAndHEAD, Signers: "s"},
		`{"url":"ssh://git:` + canary + `@git.example.com:2222/ops/x.git"}`: {Lookup: Lookup{URL: "ssh://git@git.example.com:2222/ops/x.git",
			Provider: Generic}},
		`{"url":"HTTPS://ann:` + canary + `@git.example.com/ops/x"}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x",
			Provider: Generic}, Warnings: []string{"the url has a password, which is visible to all who may read the source; put it into a Secret"}},
		`{"url":"https://` + canary + `@git.example.com/ops/x"}`: {Lookup: Lookup{URL: "https://git.example.com/ops/x",
			Provider: Generic}, Warnings: []string{"the url has a user without a password, which is not sent; put both into a Secret"}},
	} {
		got, err := readSpec(t, text)
		got.inURL = nil
		want.Namespace, want.Repository = "apps", "site"
		if err != nil || !slices.Equal(got.Warnings, want.Warnings) || !maps.Equal(got.Secure, want.Secure) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		got.Warnings, want.Warnings, got.Secure, want.Secure = nil, nil, nil, nil
		if a, b := flat(got), flat(want); a != b {
			t.Errorf("%s:\n%s, want\n%s", text, a, b)
		}
	}
	for text, want := range map[string]string{
		`{}`:        ReasonURL + " spec.url: it is missing",
		`{"url":7}`: " spec.url: it is number",
		`{"url":"git@git.example.com:ops/x.git"}`: ReasonURL + " spec.url: it begins with https://, http:// or ssh://",
		`{"url":"file:///srv/x.git"}`:             ReasonURL + " spec.url: it begins with",
		`{"url":"/srv/x.git"}`:                    ReasonURL + " spec.url: it begins with",
		`{"url":"git://git.example.com/x"}`: ReasonURL +
			` spec.url: invalid git url: scheme "git" is not one of`,
		`{"url":"https://ann:` + canary + `@git example.com/x"}`:          ReasonURL + " spec.url: invalid git url: it contains a space",
		`{"url":"https://git.example.com/x?access_token=` + canary + `"}`: ReasonURL + " spec.url: invalid git url: a query",
		`{"url":"https://git.example.com"}`:                               ReasonURL + " spec.url: invalid git url: it names no repository",
		`{` + at + `,"provider":"gihtub"}`: ReasonProvider +
			` spec.provider: unknown git provider "gihtub", did you mean "github"?`,
		`{` + at + `,"provider":["github"]}`:          " spec.provider: it is array",
		`{` + at + `,"secretRef":"keys"}`:             " spec.secretRef: it is string",
		`{` + at + `,"secretRef":{}}`:                 " spec.secretRef.name: it is not a name of a Secret",
		`{` + at + `,"secretRef":{"name":"../keys"}}`: " spec.secretRef.name: it is not a name of a Secret",
		`{` + at + `,"secretRef":{"name":"Keys"}}`:    " spec.secretRef.name: it is not a name of a Secret",
		`{` + at + `,"secretRef":{"name":3}}`:         " spec.secretRef.name: it is number",
		`{` + at + `,"proxySecretRef":{"name":""}}`:   " spec.proxySecretRef.name: it is not a name of a Secret",
		`{` + at + `,"serviceAccountName":"flux"}`: ReasonProvider +
			" spec.serviceAccountName: it goes with provider azure or aws only, and the provider is generic",
		`{` + at + `,"provider":"github","serviceAccountName":"flux"}`: ReasonProvider +
			" spec.serviceAccountName: it goes with provider azure or aws only, and the provider is github",
		`{` + at + `,"provider":"azure","serviceAccountName":"flux"}`: ReasonFeatureGate +
			" spec.serviceAccountName: limpet does not use the identity of a service account",
		`{` + at + `,"provider":"aws","serviceAccountName":"flux"}`: ReasonFeatureGate +
			" spec.serviceAccountName: limpet does not use the identity of a service account",
		`{` + at + `,"verify":{}}`:     " spec.verify.secretRef: it is missing",
		`{` + at + `,"verify":"HEAD"}`: " spec.verify: it is string",
		`{` + at + `,"verify":{"mode":"tag","secretRef":{"name":"s"}}}`: ReasonVerifyMode +
			` spec.verify.mode: unknown mode of verification "tag"`,
		`{` + at + `,"verify":{"mode":"Tag","secretRef":{"name":"s s"}}}`:    " spec.verify.secretRef.name: it is not a name of a Secret",
		`{"url":"https://u:` + canary + `@h/x","provider":"` + canary + `"}`: ReasonProvider + " spec.provider: unknown git provider",
	} {
		g, err := readSpec(t, text)
		refused, ok := errors.AsType[*SourceError](err)
		if !ok || !strings.HasPrefix(refused.Reason+" "+refused.Error(), want) || g.URL != "" {
			t.Errorf("%s: %+v, %v, want %s", text, g, err, want)
		} else if !strings.Contains(text, `"provider":"`+canary) && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error has the secret: %v", text, err)
		}
	}
}

func flat(g GitRepository) string {
	return strings.Join([]string{g.Namespace, g.Repository, g.URL, g.Provider, g.ProxySecret, g.Connection, g.Secret, string(g.Verify),
		g.Signers}, "|")
}

// TestAskedWith: with what the host of a GitRepository is asked, for each Secret and each
// provider; what of it is refused, and how Flux calls that.
func TestAskedWith(t *testing.T) {
	t.Parallel()
	const web, shell = "https://git.example.com/x", "ssh://git@git.example.com/x"
	secret := func(pairs ...string) map[string][]byte {
		data := map[string][]byte{}
		for i := 0; i+1 < len(pairs); i += 2 {
			data[pairs[i]] = []byte(pairs[i+1])
		}
		return data
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "apps.filed", "bearerToken"), canary, 0o600)
	write(t, filepath.Join(dir, "apps.site", "password"), "of a Repository of that name", 0o600)
	rules := []Rule{{URL: "https://ruled.example.com/x", Values: map[string]string{"username": "bot", "password": canary}},
		{URL: "ssh://ruled.example.com/x", Values: map[string]string{"identity": canary, "known_hosts": "h k"}},
		{URL: "https://app.example.com/x", Provider: "github", Values: map[string]string{"githubAppID": "1"}}}
	for name, test := range map[string]struct {
		url, provider, proxy string
		data                 map[string][]byte
		secret               string // "" = keys where there are data
		want                 string // kind and source of the credentials
		reason, says         string
	}{
		"nothing":             {want: "none"},
		"basic":               {data: secret("username", "ann", "password", canary), want: "basic secret apps/keys"},
		"a token":             {data: secret("token", canary), want: "basic secret apps/keys"},
		"bearer before basic": {data: secret("username", "ann", "password", canary, "bearerToken", canary), want: "bearer secret apps/keys"},
		"authority":           {data: secret("caFile", "PEM"), want: "none secret apps/keys"},
		"mutual TLS":          {data: secret("tls.crt", "c", "tls.key", "k", "ca.crt", "a"), want: "mtls secret apps/keys"},
		"half of it":          {data: secret("tls.crt", "c"), says: "tls.crt and tls.key go together"},
		"no user":             {data: secret("password", canary), says: "a password without a username"},
		"no key":              {data: secret("user", "ann"), says: "none of the keys username, password"},
		"not there": {secret: "gone",
			says: "secret apps/gone is not there, holds no credentials, or may not be read; its keys may be files apps.gone/KEY below --credentials-dir"},
		"only signers":           {data: secret("a.asc", "PEM"), says: "holds no credentials"},
		"files":                  {secret: "filed", want: "bearer directory " + dir + " for apps.filed"},
		"no files of a namesake": {want: "none"},
		"ssh": {url: shell, data: secret("identity", canary, "known_hosts", "h k", "identity.pub", "x"),
			want: "ssh secret apps/keys"},
		"ssh without": {url: shell, reason: ReasonAuthentication,
			says: "spec.secretRef: ssh needs a Secret with identity and known_hosts"},
		"ssh and a password": {url: shell, data: secret("username", "a", "password", canary),
			says: "ssh needs the keys identity and known_hosts"},
		"ssh, host unknown": {url: shell, data: secret("identity", canary), want: "ssh secret apps/keys"},
		"in the url":        {url: "https://ann:" + canary + "@git.example.com/x", want: "basic spec.url"},
		"in both": {url: "https://ann:wrong@git.example.com/x", data: secret("username", "ann", "password", canary),
			want: "basic secret apps/keys"},
		"bearer and url": {url: "https://ann:" + canary + "@git.example.com/x", data: secret("bearerToken", canary),
			reason: ReasonAuthentication, says: "spec.url: it has a password, and there is a bearer token too"},
		"rule":                 {url: "https://ruled.example.com/x", want: "basic rule https://ruled.example.com/x"},
		"rule for ssh":         {url: "ssh://ruled.example.com/x", want: "ssh rule ssh://ruled.example.com/x"},
		"no rule for a secret": {url: "https://ruled.example.com/x", secret: "gone", says: "secret apps/gone is not there"},
		"rule of a provider":   {url: "https://app.example.com/x", want: "github identity rule https://app.example.com/x"},
		"rule of another": {url: "https://app.example.com/x", provider: "azure", reason: ReasonProvider,
			says: "they are for provider github, and the repository asks for azure"},
		"app": {provider: "github", data: secret("githubAppID", "1", "githubAppInstallationID", "2", "githubAppPrivateKey",
			canary), want: "github identity secret apps/keys"},
		"app, as in the RFC": {provider: "github", data: secret("githubAppID", "1", "githubInstallationID", "2", "githubPrivateKey", canary),
			want: "github identity secret apps/keys"},
		"app of nobody": {data: secret("githubAppID", "1", "githubAppPrivateKey", canary), reason: ReasonProvider,
			says: "spec.provider: credentials in secret apps/keys: githubAppID is a key of provider github, and the provider is generic"},
		"app of another": {provider: "azure", data: secret("githubAppID", "1"), reason: ReasonProvider, says: "the provider is azure"},
		"app over ssh": {url: shell, provider: "github", data: secret("githubAppID", "1"), reason: ReasonProvider,
			says: "is for https, and the url is of ssh"},
		"azure's keys": {provider: "azure", data: secret("AZURE_CLIENT_ID", "1"), want: "azure identity secret apps/keys"},
		"azure and a password": {provider: "azure", data: secret("username", "a", "password", canary), reason: ReasonProvider,
			says: "password has no meaning for provider azure"},
		"aws":    {provider: "aws", data: secret("AWS_ACCESS_KEY_ID", "1"), want: "aws identity secret apps/keys"},
		"gcp":    {provider: "gcp", data: secret("gcpServiceAccount", canary), want: "gcp identity secret apps/keys"},
		"gitlab": {provider: "gitlab", data: secret("token", canary), want: "gitlab identity secret apps/keys"},
		"proxy":  {proxy: "way", want: "none secret apps/way"},
		"proxy not there": {proxy: "gone", reason: ReasonAuthentication,
			says: "spec.proxySecretRef: proxy in secret apps/gone: this agent finds no key address there"},
		"proxy wrong": {proxy: "wrong", reason: ReasonAuthentication,
			says: "spec.proxySecretRef: proxy in secret apps/wrong: the address of the proxy is to be"},
		"proxy away": {proxy: "broken", says: "read the proxy in secret apps/broken: api is down"},
		"away":       {secret: "broken", says: "read secret apps/broken: api is down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			get := func(_ context.Context, namespace, name string) (map[string][]byte, error) {
				switch namespace + "/" + name {
				case "apps/keys":
					return test.data, nil
				case "apps/way":
					return secret("address", "http://proxy.example.com", "username", "ann", "password", canary), nil
				case "apps/wrong":
					return secret("address", "ftp://ann:"+canary+"@x"), nil
				case "apps/broken":
					return nil, errors.New("api is down")
				}
				return nil, nil
			}
			spec := map[string]any{"url": web}
			if test.url != "" {
				spec["url"] = test.url
			}
			if test.provider != "" {
				spec["provider"] = test.provider
			}
			if test.data != nil {
				test.secret = "keys"
			}
			if test.secret != "" {
				spec["secretRef"] = map[string]any{"name": test.secret}
			}
			if test.proxy != "" {
				spec["proxySecretRef"] = map[string]any{"name": test.proxy}
			}
			g, err := ReadGitRepository("apps", "site", spec)
			if err != nil {
				t.Fatal(err)
			}
			at := Places{Secrets: Secrets(get), Dir: dir, Rules: NewList(rules)}
			c, err := g.Asked(t.Context(), at.WithTransport(at.NamedSecret()))
			if test.says != "" {
				refused, _ := errors.AsType[*SourceError](err)
				if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), canary) ||
					(refused == nil) != (test.reason == "") || refused != nil && refused.Reason != test.reason {
					t.Fatalf("%v, want %s %s", err, test.reason, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := c.Kind()
			if c != nil && c.Source != "" {
				got += " " + c.Source
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if test.proxy != "" && (c.Proxy == nil || c.Proxy.Password != canary) {
				t.Errorf("the proxy is %v", c.Proxy)
			}
			if c != nil && c.Identity != nil && test.data != nil && (c.Identity.Trusted || c.Identity.Bound) {
				t.Error("who writes the Secret is trusted with the files of this host")
			}
		})
	}
}

// TestNamedSigners: the keys are those of the Secret that is named; one without an ending
// is of OpenPGP.
func TestNamedSigners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "apps.filed", "ops.sshpub"), "ssh-ed25519 x", 0o644)
	get := func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		switch namespace + "/" + name {
		case "apps/signers":
			return map[string][]byte{"ops.asc": []byte("a"), "ops.sshpub": []byte("b"), "author": []byte("c"), "allowed_signers": []byte("d")}, nil
		case "apps/empty":
			return map[string][]byte{}, nil
		case "apps/broken":
			return nil, errors.New("api is down")
		}
		return nil, nil
	}
	for name, want := range map[string]string{
		"signers": "allowed_signers author (as OpenPGP).asc ops.asc ops.sshpub in secret apps/signers",
		"filed":   "ops.sshpub in directory " + dir + " for apps.filed",
		"empty":   ReasonVerify + " spec.verify.secretRef: secret apps/empty is not there, is empty",
		"gone":    ReasonVerify + " spec.verify.secretRef: secret apps/gone is not there",
		"broken":  " read secret apps/broken: api is down",
	} {
		found, err := GitRepository{Lookup: Lookup{Namespace: "apps", Repository: "site"}, Signers: name}.NamedSigners(t.Context(),
			Places{Secrets: Secrets(get), Dir: dir})
		got := ""
		if refused, ok := errors.AsType[*SourceError](err); ok {
			got = refused.Reason
		}
		if err != nil {
			got += " " + err.Error()
		} else {
			got = strings.Join(slices.Sorted(maps.Keys(found.Files)), " ") + " in " + found.Place
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "apps.filed", "ops.sshpub"), 0o666); err != nil {
		t.Fatal(err)
	}
	if found, err := (GitRepository{Lookup: Lookup{Namespace: "apps"}, Signers: "filed"}).NamedSigners(t.Context(),
		Places{Secrets: Secrets(get), Dir: dir}); err == nil {
		t.Errorf("keys that everybody may replace are taken: %v", found)
	}
}
