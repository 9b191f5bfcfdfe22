package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/netx"
)

// ErrNoSecret is wrapped when this agent has no secret of a Connection: it can neither use nor test
// it.
var ErrNoSecret = errors.New("this agent has no secret of it")

// Connection is the part of a Connection object that is needed to use it.
type Connection struct {
	UID       string
	Namespace string
	Name      string
	Spec      api.ConnectionSpec
	Secure    map[string]string // field -> name of the secret
}

// ConnectionOf reads a Connection object.
func ConnectionOf(u *unstructured.Unstructured) (Connection, error) {
	view, err := api.ConnectionView(u)
	if err != nil {
		return Connection{}, err
	}
	c := Connection{UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName(), Spec: view.Spec, Secure: map[string]string{}}
	for field, value := range view.Secure {
		if value.Name != "" {
			c.Secure[field] = value.Name
		}
	}
	return c, nil
}

func (c Connection) String() string { return "connection " + c.Namespace + "/" + c.Name }

// Mints reports whether tokens are minted for the Connection, because it is that of a GitHub App.
// Others hold a token.
func (c Connection) Mints() bool { return c.Spec.Type == "github" || c.Spec.Type == "githubEnterprise" }

// app returns the App of a Connection that mints.
func (c Connection) app(h *Hosts, base string, secret *auth.Credentials) (*app, error) {
	spec := c.Spec.GitHub
	if c.Spec.Type == "githubEnterprise" {
		spec = c.Spec.GitHubEnterprise
	}
	if spec == nil {
		spec = &api.GitHubApp{}
	}
	for name, value := range map[string]string{"appID": spec.AppID, "installationID": spec.InstallationID} {
		if !isNumber(value) {
			e := invalid("use "+c.String(), "%s is not a number, written as text", name)
			e.Fields = []netx.Field{{Type: "FieldValueInvalid", Field: "spec." + c.Spec.Type + "." + name,
				Detail: "must be a number, written as text"}}
			return nil, e
		}
	}
	if len(secret.PrivateKey) == 0 {
		return nil, c.noSecret()
	}
	key, err := privateKey(secret.PrivateKey)
	if err != nil {
		e := invalid("use "+c.String(), "the private key from %s cannot be used: %w", secret.Source, err)
		e.Fields = []netx.Field{{Type: "FieldValueInvalid", Field: "secure.privateKey", Detail: err.Error()}}
		return nil, e
	}
	return &app{h: h, of: c.String(), base: base, id: spec.AppID, install: spec.InstallationID, key: key, secret: secret}, nil
}

// hooks reports whether the Connection is for webhooks too.
func (c Connection) hooks() bool { return c.Spec.Webhook == nil || !c.Spec.Webhook.Disabled }

// api returns the base URL of the REST API, and the host and port of its clone URLs.
func (c Connection) api(apis map[string]string) (base, host string, err error) {
	a, err := auth.ParseServer(c.Spec.Server())
	if err != nil {
		return "", "", invalid("use "+c.String(), "the address of its host: %w", err)
	}
	origin, host := a.Scheme+"://"+a.HostPort(), a.HostPort()
	if base, set := apis[host]; set {
		return strings.TrimSuffix(base, "/"), host, nil
	}
	switch c.Spec.Type {
	case "gitlab":
		return origin + "/api/v4", host, nil
	case "bitbucket":
		if host != "bitbucket.org" && host != "www.bitbucket.org" {
			return "", "", invalid("use "+c.String(), "%s is not Bitbucket Cloud, and the API of Bitbucket Data Center is not spoken here", host)
		}
		return bitbucketCloud, host, nil
	case "githubEnterprise", "githubEnterpriseOAuth":
		origin = c.Spec.Server()
	}
	base, err = serverAPI(origin) // the URL of a GitHub connection may be a page
	return base, host, err
}

// user returns the user name that goes with a token over Git.
func (c Connection) user() string {
	switch c.Spec.Type {
	case "gitlab":
		return "oauth2"
	case "bitbucket":
		return "x-token-auth"
	}
	return "x-access-token"
}

func (c Connection) noSecret() error { return fmt.Errorf("use %s: %w", c, ErrNoSecret) }

// owner returns the owner of cached tokens.
func (c Connection) owner() string { return cmp.Or(c.UID, c.String()) }

// Minter mints tokens of Connections and tests them. Safe for concurrent use.
type Minter struct {
	hosts   *Hosts
	secrets auth.Source
	tokens  *auth.Tokens
}

// NewMinter returns a Minter with a source of the secrets of Connections, by Lookup.Connection, and
// a token cache.
func NewMinter(hosts *Hosts, secrets auth.Source, tokens *auth.Tokens) *Minter {
	return &Minter{hosts: hosts, secrets: secrets, tokens: tokens}
}

// Counts returns the counts of the token cache.
func (m *Minter) Counts() auth.TokenCounts { return m.tokens.Counts() }

// Forget drops the cached tokens of a Connection whose secret has changed.
func (m *Minter) Forget(c Connection) { m.tokens.Forget(c.owner()) }

// Mint returns a token for one repository: for an App one that is limited to it and expires after
// an hour, for other types the token of the Connection. It is cached for 80 % of its lifetime, and
// empty for a URL that takes none. The error wraps ErrNoSecret when this agent cannot mint for the
// Connection.
func (m *Minter) Mint(ctx context.Context, c Connection, t Target) (auth.Token, error) {
	token, _, err := m.mint(ctx, c, t.URL)
	return token, err
}

// tokenAddress parses a URL that takes a token: tokens are for http, and the URL is checked
// elsewhere.
func tokenAddress(url string) (a auth.Address, ok bool) {
	a, err := auth.ParseAddress(url)
	return a, err == nil && a.Scheme != "ssh" && !a.Local()
}

// mint returns a token, and the credentials that it makes, nil for a URL that takes none.
func (m *Minter) mint(ctx context.Context, c Connection, url string) (auth.Token, *auth.Credentials, error) {
	a, ok := tokenAddress(url)
	if !ok {
		return auth.Token{}, nil, nil
	}
	secret, err := m.secret(ctx, c)
	if err != nil {
		return auth.Token{}, nil, err
	}
	base, host, err := c.api(m.hosts.apis)
	if err != nil {
		return auth.Token{}, nil, err
	}
	// A token is never sent to another host, whatever a Repository says.
	if at := a.HostPort(); strings.TrimPrefix(at, "www.") != strings.TrimPrefix(host, "www.") {
		return auth.Token{}, nil, invalid("use "+c.String(), "it is for %s, and the repository is at %s", host, at)
	}
	creds := *secret
	creds.Username, creds.Source, creds.PrivateKey = c.user(), c.String(), nil
	if !c.Mints() {
		if secret.Password == "" {
			return auth.Token{}, nil, c.noSecret()
		}
		return auth.Token{Value: secret.Password}, &creds, nil
	}
	app, err := c.app(m.hosts, base, secret)
	if err != nil {
		return auth.Token{}, nil, err
	}
	path := strings.TrimSuffix(strings.Trim(a.Path, "/"), ".git")
	_, name, _ := strings.Cut(path, "/")
	if name == "" || strings.Contains(name, "/") {
		return auth.Token{}, nil, invalid("use "+c.String(), "the URL of the repository does not end in owner/name")
	}
	key := auth.TokenKey{Owner: c.owner(), Secret: strings.Join([]string{secret.Fingerprint(), base, app.id, app.install}, " "),
		Scope: fmt.Sprint(path, " webhooks ", c.hooks())}
	token, err := m.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return app.mint(ctx, name, c.hooks()) })
	creds.Password, creds.Forget = token.Value, func() { m.tokens.Refused(key, token.Value) }
	return token, &creds, err
}

func (m *Minter) secret(ctx context.Context, c Connection) (*auth.Credentials, error) {
	secret, err := m.secrets(ctx, auth.Lookup{Namespace: c.Namespace, Connection: c.Name, Secure: c.Secure})
	if err == nil && secret == nil {
		err = c.noSecret()
	}
	return secret, err
}

// Place returns where the secret of a Connection is, for people. The error wraps ErrNoSecret when
// this agent has none.
func (m *Minter) Place(ctx context.Context, c Connection) (string, error) {
	secret, err := m.secret(ctx, c)
	if err != nil {
		return "", err
	}
	return secret.Source, nil
}

// Test checks whether the host accepts the identity of a Connection. Nil means healthy; otherwise
// Reason and Fields of an *Error explain it. An error that wraps ErrNoSecret means unknown.
func (m *Minter) Test(ctx context.Context, c Connection) error {
	secret, err := m.secret(ctx, c)
	if err != nil {
		return err
	}
	base, _, err := c.api(m.hosts.apis)
	if err != nil {
		return err
	}
	if c.Mints() {
		app, err := c.app(m.hosts, base, secret)
		if err != nil {
			return err
		}
		return app.test(ctx, "spec."+c.Spec.Type, c.hooks())
	}
	if secret.Password == "" {
		return c.noSecret()
	}
	creds := *secret
	creds.Source = c.String()
	r := request{op: "test " + c.String(), method: http.MethodGet, path: "/user"}
	if b := c.Spec.Bitbucket; c.Spec.Type == "bitbucket" && b != nil && b.Workspace != "" {
		// The token of a workspace is no person's.
		r.path, r.query = "/repositories/"+url.PathEscape(b.Workspace), url.Values{"pagelen": {"1"}}
	}
	_, err = m.hosts.caller(base, "Bearer ", &creds).do(ctx, r)
	if netx.KindOf(err) == netx.Forbidden && strings.Contains(strings.ToLower(err.Error()), "scope") {
		return nil // the host knows the token, which may do other things
	}
	return withFields(err, map[netx.ErrorKind][]netx.Field{
		netx.Unauthorized: {{Type: "FieldValueInvalid", Field: "secure.token", Detail: "the host does not take it"}},
		netx.Forbidden:    {{Type: "FieldValueForbidden", Field: "secure.token", Detail: "the host does not let it in"}},
	})
}

// Source returns the credentials of Repositories that name a Connection. get returns the Connection
// object, or nil, nil when there is none. When this agent has no secret of it, the search continues
// elsewhere.
func (m *Minter) Source(get func(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error)) auth.Source {
	return func(ctx context.Context, l auth.Lookup) (*auth.Credentials, error) {
		if l.Connection == "" {
			return nil, nil
		}
		if _, ok := tokenAddress(l.URL); !ok { // before get, whose failure must not stop the search
			return nil, nil
		}
		u, err := get(ctx, l.Namespace, l.Connection)
		if err != nil || u == nil {
			return nil, err
		}
		c, err := ConnectionOf(u)
		if err != nil {
			return nil, err
		}
		_, creds, err := m.mint(ctx, c, l.URL)
		switch {
		case errors.Is(err, ErrNoSecret):
			return nil, nil
		case err != nil:
			return nil, err
		case creds != nil && !c.Mints():
			creds.Username = cmp.Or(l.TokenUser, creds.Username)
		}
		return creds, nil
	}
}
