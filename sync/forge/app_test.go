package forge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/netx"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/testenv/gittest"
)

// site is a fake GitHub Enterprise with one App, and who mints at it.
type site struct {
	host    *forgetest.Host
	app     *forgetest.App
	install *forgetest.Installation
	secret  *auth.Credentials
	tokens  *auth.Tokens
	minter  *Minter
	conn    Connection
	target  Target
}

func newSite(t testing.TB, o forgetest.Options) *site {
	t.Helper()
	s := &site{host: forgetest.New(t, o), tokens: auth.NewTokens(0)}
	s.install = &forgetest.Installation{Account: "team", Repositories: []string{"site", "other"}, Permissions: forgetest.AllPermissions()}
	s.app = s.host.App(t, "123456", map[string]*forgetest.Installation{"454545": s.install})
	s.host.Add("team/site", forgetest.Repository{DefaultBranch: "main"})
	s.secret = &auth.Credentials{PrivateKey: s.app.Key, Source: "directory /creds"}
	hosts := New(Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	s.minter = NewMinter(hosts, func(context.Context, auth.Lookup) (*auth.Credentials, error) { return s.secret, nil },
		s.tokens)
	s.conn = Connection{UID: "uid-1", Namespace: "default", Name: "app", Spec: api.ConnectionSpec{Type: "githubEnterprise",
		GitHubEnterprise: &api.GitHubApp{AppID: "123456", InstallationID: "454545", ServerURL: s.host.URL}}}
	s.target = Target{Type: "githubEnterprise", URL: s.host.URL + "/team/site.git", ServerURL: s.host.URL}
	return s
}

func TestMint(t *testing.T) {
	t.Parallel()
	s := newSite(t, forgetest.Options{})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			token, err := s.minter.Mint(t.Context(), s.conn, s.target)
			if err != nil || !s.host.Accepts("x-access-token", token.Value, "team/site") {
				t.Errorf("%v %v", token, err)
			}
			if token.Life < 59*time.Minute || token.Life > time.Hour || token.Expires.IsZero() {
				t.Errorf("%v until %v", token, token.Expires)
			}
		})
	}
	wg.Wait()
	if asked := s.host.Requests(); len(asked) != 2 {
		t.Fatalf("30 callers made the requests %q, want the installation and the token", asked)
	}
	token, _ := s.minter.Mint(t.Context(), s.conn, s.target)
	if s.host.Accepts("x-access-token", token.Value, "team/other") {
		t.Error("the token is good for another repository")
	}
	// Other spellings of the same repository, another repository, another secret.
	spelled := s.target
	spelled.URL = s.host.URL + "/team/site/"
	if again, err := s.minter.Mint(t.Context(), s.conn, spelled); err != nil || again.Value != token.Value {
		t.Errorf("another spelling has another token: %v", err)
	}
	other := s.target
	other.URL = s.host.URL + "/team/other"
	if again, err := s.minter.Mint(t.Context(), s.conn, other); err != nil || again.Value == token.Value {
		t.Errorf("another repository has the same token: %v", err)
	}
	s.secret = &auth.Credentials{PrivateKey: []byte(base64.StdEncoding.EncodeToString(s.app.Key)), Source: "elsewhere"}
	if again, err := s.minter.Mint(t.Context(), s.conn, s.target); err != nil || again.Value == token.Value {
		t.Errorf("another secret has the same token: %v", err)
	}
	if n := len(s.host.Minted()); n != 3 {
		t.Errorf("%d tokens were made, want 3", n)
	}
}

// TestMintPermissions: a token has no permission that is not needed, and is made
// of what the installation has, also when that changes.
func TestMintPermissions(t *testing.T) {
	t.Parallel()
	s := newSite(t, forgetest.Options{})
	s.install.Permissions = map[string]string{"contents": "read", "metadata": "read", "issues": "write", "administration": "write"}
	token, err := s.minter.Mint(t.Context(), s.conn, s.target)
	if err != nil || !s.host.Accepts("x-access-token", token.Value, "team/site") {
		t.Fatal(err)
	}
	s.host.Change(func() { delete(s.install.Permissions, "administration") })
	other := s.target
	other.URL = s.host.URL + "/team/other"
	if _, err := s.minter.Mint(t.Context(), s.conn, other); err != nil {
		t.Errorf("after a permission was taken away: %v", err)
	}
	// One that may not read at all is told from one that is not there.
	s.host.Change(func() { s.install.Permissions = map[string]string{"metadata": "read"} })
	s.conn.UID = "uid-2"
	if _, err := s.minter.Mint(t.Context(), s.conn, s.target); netx.KindOf(err) != netx.Forbidden || !strings.Contains(err.Error(), "contents") {
		t.Errorf("without contents: %v", err)
	}
}

func TestMintErrors(t *testing.T) {
	t.Parallel()
	strange, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	foreign := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(strange)})
	cases := []struct {
		name string
		harm func(s *site)
		kind netx.ErrorKind
		text string
	}{
		{"another key", func(s *site) { s.secret.PrivateKey = foreign }, netx.Unauthorized,
			"GitHub App 123456, installation 454545, of connection default/app"},
		{"another app", func(s *site) { s.conn.Spec.GitHubEnterprise.AppID = "9" }, netx.Unauthorized, "GitHub App 9"},
		{"no installation", func(s *site) { s.conn.Spec.GitHubEnterprise.InstallationID = "9" }, netx.NotFound, "/app/installations/9"},
		{"suspended", func(s *site) { s.install.Suspended = true }, netx.Forbidden, "suspended"},
		{"not included", func(s *site) { s.install.Repositories = nil }, netx.NotFound, "repository site is not there"},
		{"app id is a name", func(s *site) { s.conn.Spec.GitHubEnterprise.AppID = "limpet" }, netx.Invalid, "appID is not a number"},
		{"path in the installation id", func(s *site) { s.conn.Spec.GitHubEnterprise.InstallationID = "1/../2" }, netx.Invalid, "installationID"},
		{"no block", func(s *site) { s.conn.Spec.GitHubEnterprise = nil }, netx.Invalid, "not an http or https URL"},
		{"no key", func(s *site) { s.secret.PrivateKey = nil }, netx.Unknown, ErrNoSecret.Error()},
		{"no secret", func(s *site) { s.secret = nil }, netx.Unknown, ErrNoSecret.Error()},
		{"a key of words", func(s *site) { s.secret.PrivateKey = []byte(canary) }, netx.Invalid, "neither a PEM"},
		{"a broken key", func(s *site) {
			s.secret.PrivateKey = []byte("-----BEGIN RSA PRIVATE KEY-----\n" + base64.StdEncoding.EncodeToString([]byte(canary)) +
				"\n-----END RSA PRIVATE KEY-----\n")
		}, netx.Invalid, "no unencrypted"},
		{"another host", func(s *site) { s.target.URL = "https://evil.example/team/site" }, netx.Invalid, "the repository is at evil.example"},
		{"another port", func(s *site) { s.target.URL = "http://127.0.0.1:1/team/site" }, netx.Invalid, "the repository is at 127.0.0.1:1"},
		{"no owner", func(s *site) { s.target.URL = s.host.URL + "/site" }, netx.Invalid, "owner/name"},
		{"down", func(s *site) {
			s.host.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 502} })
		}, netx.Unavailable, "502"},
		{"a token that has ended", func(s *site) { answerToken(s, `{"token":"ghs_x","expires_at":"2020-01-01T00:00:00Z"}`) }, netx.Protocol,
			"has expired"},
		{"no token", func(s *site) { answerToken(s, `{"token":"","expires_at":"2099-01-01T00:00:00Z"}`) }, netx.Protocol, "no token"},
		{"a header in the token", func(s *site) { answerToken(s, `{"token":"a\r\nX: y","expires_at":"2099-01-01T00:00:00Z"}`) }, netx.Protocol,
			"no token"},
		{"no time", func(s *site) { answerToken(s, `{"token":"ghs_x"}`) }, netx.Protocol, "has expired"},
		{"a strange time", func(s *site) { answerToken(s, `{"token":"`+canary+`","expires_at":"soon"}`) }, netx.Protocol, "not what this API"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, forgetest.Options{})
			c.harm(s)
			token, err := s.minter.Mint(t.Context(), s.conn, s.target)
			silent(t, err)
			if netx.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) || token.Value != "" {
				t.Fatalf("%v %v, want %s with %q", token, err, c.kind, c.text)
			}
			if strings.Contains(err.Error(), "eyJ") {
				t.Errorf("a proof is in %v", err)
			}
			if n := s.tokens.Counts().Held; n != 0 {
				t.Errorf("%d tokens are kept of a failure", n)
			}
		})
	}
}

// answerToken has the host make tokens of this form.
func answerToken(s *site, body string) {
	s.host.Fault(func(r *http.Request) *forgetest.Answer {
		if strings.HasSuffix(r.URL.Path, "/access_tokens") {
			return &forgetest.Answer{Status: 201, Body: body}
		}
		return nil
	})
}

// TestClockSkew: a host whose clock is an hour away is asked by its own clock,
// and the life of a token is counted by it.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, 20 * time.Second, -20 * time.Second, 40 * time.Second, -40 * time.Second, 5 * time.Minute,
		time.Hour, -time.Hour, -24 * 365 * time.Hour} {
		s := newSite(t, forgetest.Options{Skew: skew})
		token, err := s.minter.Mint(t.Context(), s.conn, s.target)
		// The Date header has whole seconds.
		if err != nil || token.Life < 59*time.Minute || token.Life > time.Hour+time.Second {
			t.Errorf("skew %v: %v %v", skew, token, err)
			continue
		}
		most := 2
		if skew.Abs() > 30*time.Second {
			most = 3
		}
		if asked := s.host.Requests(); len(asked) > most {
			t.Errorf("skew %v: requests %q", skew, asked)
		}
	}
}

func TestPrivateKeyForms(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, _ := gittest.LargeRSA(t)
	p8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	p1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	wrapped := func(b []byte) []byte {
		text := base64.StdEncoding.EncodeToString(b)
		return []byte(text[:60] + "\n" + text[60:] + "\n")
	}
	for name, text := range map[string][]byte{"pkcs1": p1, "pkcs8": p8(key), "base64 of pkcs1": wrapped(p1),
		"base64 of pkcs8": wrapped(p8(key))} {
		if got, err := privateKey(text); err != nil || !got.Equal(key) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string][]byte{"empty": nil, "short": p8(short), "long": long, "curve": p8(curve), "half": p1[:200],
		"public": []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")} {
		if _, err := privateKey(text); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestConnectionTest(t *testing.T) {
	t.Parallel()
	fields := func(err error) (out []string) {
		if e, ok := errors.AsType[*netx.Error](err); ok {
			for _, f := range e.Fields {
				out = append(out, f.Field)
			}
		}
		return out
	}
	cases := []struct {
		name   string
		change func(s *site)
		reason string
		fields []string
		text   string
	}{
		{"healthy", func(*site) {}, "", nil, ""},
		{"another key", func(s *site) { s.conn.Spec.GitHubEnterprise.AppID = "77" }, netx.ReasonAuthenticationFailed,
			[]string{"spec.githubEnterprise.appID", "secure.privateKey"}, "401"},
		{"a key of another App", func(s *site) {
			s.host.Fault(func(r *http.Request) *forgetest.Answer {
				if strings.HasSuffix(r.URL.Path, "/app") {
					return &forgetest.Answer{Status: 200, Body: `{"id":77}`}
				}
				return nil
			})
		}, netx.ReasonInvalidSpec, []string{"spec.githubEnterprise.appID"}, "App 77"},
		{"broken key", func(s *site) { s.secret.PrivateKey = []byte("x") }, netx.ReasonInvalidSpec, []string{"secure.privateKey"}, "private key"},
		{"no installation", func(s *site) { s.conn.Spec.GitHubEnterprise.InstallationID = "1" }, netx.ReasonInvalidSpec,
			[]string{"spec.githubEnterprise.installationID"}, "404"},
		{"suspended", func(s *site) { s.install.Suspended = true }, netx.ReasonAuthenticationFailed, []string{"spec.githubEnterprise.installationID"},
			"suspended"},
		{"two permissions missing", func(s *site) {
			s.install.Permissions = map[string]string{"contents": "read", "metadata": "read", "repository_hooks": "write"}
		},
			netx.ReasonAuthenticationFailed, []string{"spec.githubEnterprise.appID", "spec.githubEnterprise.appID"},
			"contents: write, it has read, and 1 more"},
		{"no webhooks wanted", func(s *site) {
			delete(s.install.Permissions, "repository_hooks")
			s.conn.Spec.Webhook = &struct {
				Disabled bool `json:"disabled,omitempty"`
			}{true}
		}, "", nil, ""},
		{"down", func(s *site) {
			s.host.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 503} })
		}, netx.ReasonServiceUnavailable, nil, "503"},
		{"limited", func(s *site) {
			s.host.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 429} })
		}, netx.ReasonRateLimited, nil, "429"},
		{"gitlab", func(s *site) { tokenOf(s, "gitlab", forgetest.Rights{}) }, "", nil, ""},
		{"gitlab, for git only", func(s *site) { tokenOf(s, "gitlab", forgetest.Rights{Scope: "read_repository"}) }, "", nil, ""},
		{"gitlab, wrong token", func(s *site) { tokenOf(s, "gitlab", forgetest.Rights{}); s.secret.Password = canary }, netx.ReasonAuthenticationFailed,
			[]string{"secure.token"}, "401"},
		{"bitbucket", func(s *site) { tokenOf(s, "bitbucket", forgetest.Rights{}) }, "", nil, ""},
		{"bitbucket workspace", func(s *site) {
			tokenOf(s, "bitbucket", forgetest.Rights{Scope: "repository"})
			s.conn.Spec.Bitbucket = &struct {
				Workspace string `json:"workspace"`
			}{"work"}
		}, "", nil, ""},
		{"bitbucket, wrong token", func(s *site) { tokenOf(s, "bitbucket", forgetest.Rights{}); s.secret.Password = canary },
			netx.ReasonAuthenticationFailed, []string{"secure.token"}, "401"},
		{"bitbucket, whose address is another host's", func(s *site) {
			tokenOf(s, "bitbucket", forgetest.Rights{})
			s.minter.hosts.apis = nil // the token is not for api.bitbucket.org
		}, netx.ReasonInvalidSpec, nil, "not Bitbucket Cloud"},
		{"github oauth", func(s *site) { tokenOf(s, "githubEnterpriseOAuth", forgetest.Rights{}) }, "", nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, forgetest.Options{})
			c.change(s)
			err := s.minter.Test(t.Context(), s.conn)
			silent(t, err)
			if c.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, ok := errors.AsType[*netx.Error](err)
			if !ok || e.Reason() != c.reason || !strings.Contains(err.Error(), c.text) || !slices.Equal(fields(err), c.fields) {
				t.Fatalf("%v %q, want %s %q with %q", err, fields(err), c.reason, c.fields, c.text)
			}
		})
	}
	s := newSite(t, forgetest.Options{})
	s.secret = nil
	if err := s.minter.Test(t.Context(), s.conn); !errors.Is(err, ErrNoSecret) {
		t.Errorf("without a secret: %v", err)
	}
}

// tokenOf makes a Connection that holds a token.
func tokenOf(s *site, kind string, r forgetest.Rights) {
	s.host.Token(canary+"-token", r)
	s.secret = &auth.Credentials{Password: canary + "-token", Source: "here"}
	s.conn.Spec = api.ConnectionSpec{Type: kind, URL: s.host.URL}
	switch kind {
	case "bitbucket":
		s.minter.hosts.apis = map[string]string{strings.TrimPrefix(s.host.URL, "http://"): s.host.URL + "/2.0"}
	case "githubEnterpriseOAuth":
		s.conn.Spec.EnterpriseOAuth = &struct {
			ServerURL string `json:"serverUrl"`
		}{s.host.URL}
	}
}

func connectionObject(name, uid string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": name, "uid": uid}, "spec": spec,
		"secure": map[string]any{"privateKey": map[string]any{"name": "inline-1"}}}}
}

func TestSource(t *testing.T) {
	t.Parallel()
	s := newSite(t, forgetest.Options{})
	objects := map[string]*unstructured.Unstructured{
		"app": connectionObject("app", "uid-1", map[string]any{"type": "githubEnterprise",
			"githubEnterprise": map[string]any{"appID": "123456", "installationID": "454545", "serverUrl": s.host.URL}}),
		"lab":     connectionObject("lab", "uid-2", map[string]any{"type": "gitlab", "url": s.host.URL}),
		"strange": connectionObject("strange", "uid-3", map[string]any{"type": 7}),
	}
	source := s.minter.Source(func(_ context.Context, namespace, name string) (*unstructured.Unstructured, error) {
		if name == "broken" {
			return nil, errors.New("the API is away")
		}
		return objects[name], nil
	})
	s.minter.secrets = func(_ context.Context, l auth.Lookup) (*auth.Credentials, error) {
		switch l.Connection {
		case "app":
			if l.Secure["privateKey"] != "inline-1" {
				t.Errorf("looked up %+v", l)
			}
			return s.secret, nil
		case "lab":
			return &auth.Credentials{Password: canary}, nil
		}
		return nil, nil
	}
	url := s.host.URL + "/team/site.git"
	look := func(connection, url string) (*auth.Credentials, error) {
		return source(t.Context(), auth.Lookup{Namespace: "default", Repository: "site", URL: url, Connection: connection})
	}
	for name, c := range map[string][2]string{"no connection": {"", url}, "no such connection": {"gone", url},
		"over ssh": {"app", "git@127.0.0.1:team/site"}, "over ssh, the API is away": {"broken", "git@127.0.0.1:team/site"}, "a file": {"app", "/srv/git"}} {
		if creds, err := look(c[0], c[1]); creds != nil || err != nil {
			t.Errorf("%s: %v %v", name, creds, err)
		}
	}
	for name, c := range map[string][2]string{"the API is away": {"broken", url}, "no object of ours": {"strange", url},
		"another host": {"app", "https://evil.example/team/site"}, "another host for a plain token": {"lab", "https://evil.example/a/b"}} {
		if creds, err := look(c[0], c[1]); creds != nil || err == nil {
			t.Errorf("%s: %v %v", name, creds, err)
		}
	}
	first, err := look("app", url)
	if err != nil || first.Username != "x-access-token" || !s.host.Accepts(first.Username, first.Password, "team/site") ||
		first.Source != "connection default/app" {
		t.Fatalf("%v %v", first, err)
	}
	if again, _ := look("app", url); again.Password != first.Password {
		t.Error("every look-up mints")
	}
	// A token that the host does not take any more is made again.
	s.host.Revoke(first.Password)
	first.Refused()
	if again, err := look("app", url); err != nil || again.Password == first.Password ||
		!s.host.Accepts(again.Username, again.Password, "team/site") {
		t.Errorf("after it was refused: %v %v", again, err)
	}
	if c, err := look("lab", s.host.URL+"/a/b/c"); err != nil || c.Username != "oauth2" || c.Password != canary {
		t.Errorf("%v %v", c, err)
	}
	// Without a secret here the search goes on.
	s.secret = nil
	if creds, err := look("app", url); creds != nil || err != nil {
		t.Errorf("without a secret: %v %v", creds, err)
	}
}

// TestMintAfterCancel checks that no token is requested after the context has ended.
func TestMintAfterCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t, forgetest.Options{})
	ctx, end := context.WithCancel(t.Context())
	end()
	if _, err := s.minter.Mint(ctx, s.conn, s.target); netx.KindOf(err) != netx.Cancelled {
		t.Errorf("%v", err)
	}
	if err := s.minter.Test(ctx, s.conn); netx.KindOf(err) != netx.Cancelled {
		t.Errorf("%v", err)
	}
	if asked := s.host.Requests(); len(asked) != 0 {
		t.Errorf("requests after the end: %q", asked)
	}
}
