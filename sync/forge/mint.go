package forge

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
)

// Minter mints tokens of Connections and tests them. Safe for concurrent use.
type Minter struct {
	hosts   *Hosts
	secrets auth.ConnectionSource
	tokens  *auth.Tokens
}

// NewMinter returns a Minter with a source of secrets and a token cache.
func NewMinter(hosts *Hosts, secrets auth.ConnectionSource, tokens *auth.Tokens) *Minter {
	return &Minter{hosts: hosts, secrets: secrets, tokens: tokens}
}

// Counts returns the counts of the token cache.
func (m *Minter) Counts() auth.TokenCounts { return m.tokens.Counts() }

// minted is a token and its use.
type minted struct {
	auth.Token
	secret *auth.ConnectionSecret
	forget func()
}

// Mint returns a token for one repository: for an App one that is limited to it and
// expires after an hour, for other types the token of the Connection. It is cached
// for 80 % of its lifetime. The error wraps ErrNoSecret when this agent cannot mint
// for the Connection.
func (m *Minter) Mint(ctx context.Context, c Connection, t Target) (auth.Token, error) {
	a, err := auth.ParseAddress(t.URL)
	if err != nil {
		return auth.Token{}, invalid("use "+c.String(), "%w", err)
	}
	made, err := m.mint(ctx, c, a)
	return made.Token, err
}

// MintFor is Mint for callers with other sources of credentials: the token is empty
// when this agent has no secret of the Connection, or tokens do not fit the URL.
func (m *Minter) MintFor(ctx context.Context, c Connection, t Target) (auth.Token, error) {
	if a, err := auth.ParseAddress(t.URL); err != nil || a.Scheme == "ssh" || a.Scheme == "file" {
		return auth.Token{}, nil
	}
	token, err := m.Mint(ctx, c, t)
	if isNoSecret(err) {
		return auth.Token{}, nil
	}
	return token, err
}

func (m *Minter) mint(ctx context.Context, c Connection, a auth.Address) (minted, error) {
	secret, err := m.secret(ctx, c)
	if err != nil {
		return minted{}, err
	}
	base, host, err := c.api(m.hosts.o.APIs)
	if err != nil {
		return minted{}, err
	}
	if err := c.serves(a, host); err != nil {
		return minted{}, err
	}
	spec := c.app()
	if spec == nil {
		if secret.Token == "" {
			return minted{}, c.noSecret()
		}
		return minted{Token: auth.Token{Value: secret.Token}, secret: secret}, nil
	}
	app, err := m.hosts.app(c, spec, base, secret)
	if err != nil {
		return minted{}, err
	}
	path := strings.TrimSuffix(strings.Trim(a.Path, "/"), ".git")
	if strings.Count(path, "/") != 1 {
		return minted{}, invalid("use "+c.String(), "the URL of the repository does not end in owner/name")
	}
	place := Place{Path: path}
	key := auth.TokenKey{Owner: c.owner(), Secret: strings.Join([]string{secret.Fingerprint(), app.grantsKey}, " "), Scope: place.Path}
	if !app.hooks {
		key.Scope += " without webhooks"
	}
	token, err := m.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return app.mint(ctx, place.Name()) })
	return minted{token, secret, func() { m.tokens.Refused(key, token.Value) }}, err
}

// Forget drops the cached tokens of a Connection whose secret has changed.
func (m *Minter) Forget(c Connection) { m.tokens.Forget(c.owner()) }

// owner returns the owner of cached tokens.
func (c Connection) owner() string { return cmp.Or(c.UID, c.String()) }

func (m *Minter) secret(ctx context.Context, c Connection) (*auth.ConnectionSecret, error) {
	secret, err := m.secrets(ctx, auth.ConnectionLookup{Namespace: c.Namespace, Name: c.Name, Secure: c.Secure})
	if err == nil && secret == nil {
		err = c.noSecret()
	}
	return secret, err
}

// Place returns where the secret of a Connection is, for people. The error wraps
// ErrNoSecret when this agent has none.
func (m *Minter) Place(ctx context.Context, c Connection) (string, error) {
	secret, err := m.secret(ctx, c)
	if err != nil {
		return "", err
	}
	return secret.Source, nil
}

// Test checks whether the host accepts the identity of a Connection. Nil means
// healthy; otherwise Reason and Fields of an *Error explain it. An error that wraps
// ErrNoSecret means unknown.
func (m *Minter) Test(ctx context.Context, c Connection) error {
	secret, err := m.secret(ctx, c)
	if err != nil {
		return err
	}
	base, _, err := c.api(m.hosts.o.APIs)
	if err != nil {
		return err
	}
	if spec := c.app(); spec != nil {
		app, err := m.hosts.app(c, spec, base, secret)
		if err != nil {
			return err
		}
		return app.test(ctx)
	}
	if secret.Token == "" {
		return c.noSecret()
	}
	creds := c.credentials(secret, secret.Token)
	caller, err := m.hosts.caller(base, creds)
	if err != nil {
		return err
	}
	caller.sign = bearer(creds)
	r := request{op: "test " + c.String(), method: http.MethodGet, path: "/user"}
	if b := c.Spec.Bitbucket; c.Spec.Type == "bitbucket" && b != nil && b.Workspace != "" {
		// The token of a workspace is no person's.
		r.path, r.query = "/repositories/"+url.PathEscape(b.Workspace), url.Values{"pagelen": {"1"}}
	}
	err = send(ctx, caller, r)
	if KindOf(err) == Forbidden && strings.Contains(strings.ToLower(err.Error()), "scope") {
		return nil // the host knows the token, which may do other things
	}
	return withFields(err, map[ErrorKind][]Field{
		Unauthorized: {{Type: "FieldValueInvalid", Field: "secure.token", Detail: "the host does not take it"}},
		Forbidden:    {{Type: "FieldValueForbidden", Field: "secure.token", Detail: "the host does not let it in"}},
	})
}

// Source returns the credentials of Repositories that name a Connection. get returns
// the Connection object, or nil, nil when there is none. When this agent has no
// secret of it, the search continues elsewhere.
func (m *Minter) Source(get func(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error)) auth.Source {
	return auth.SourceFunc(func(ctx context.Context, l auth.Lookup) (*auth.Credentials, error) {
		if l.Connection == "" {
			return nil, nil
		}
		a, err := auth.ParseAddress(l.URL)
		if err != nil || a.Scheme == "ssh" || a.Scheme == "file" {
			return nil, nil // tokens are for http, and the URL is judged elsewhere
		}
		u, err := get(ctx, l.Namespace, l.Connection)
		if err != nil || u == nil {
			return nil, err
		}
		c, err := ConnectionOf(u)
		if err != nil {
			return nil, err
		}
		made, err := m.mint(ctx, c, a)
		if isNoSecret(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		creds := &auth.Credentials{Username: c.user(), Password: made.Value, Source: c.String(), Forget: made.forget,
			CA: made.secret.CA, ClientCert: made.secret.ClientCert, ClientKey: made.secret.ClientKey, Proxy: made.secret.Proxy}
		if c.app() == nil {
			creds.Username = cmp.Or(l.TokenUser, creds.Username)
		}
		return creds, nil
	})
}
