// Package identity makes Git credentials of identities: a GitHub App, a managed identity of Azure,
// a service account of Google, a role of AWS, a token of GitLab. The source of credentials below it
// finds the keys of an identity; a [Provider] turns them into a token.
//
// The laws of this package: every call has a deadline and a bounded answer; tokens are in memory
// only, and are used until they expire when their provider is down; a provider that has just failed
// is not asked again at once; an error names the identity and the endpoint, never a secret.
//
// Tokens of a cloud open more than Git, and the identity of the host itself (variables, metadata
// servers) belongs to the operator of the agent. They go to hosts of their own cloud, and to others
// only where the config file says so: whoever may write a Repository must not be able to send them
// to a host of their choice.
package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/fileid"
	"limpet/sync/netx"
)

// DefaultTokens is how many tokens are cached for each provider, and callTimeout bounds one call.
// Source: Flux.
const (
	DefaultTokens = 100
	callTimeout   = 10 * time.Second
)

// Provider makes the credentials of one kind of identity. It blocks for at most callTimeout for
// each of a few calls.
type Provider interface {
	Credentials(ctx context.Context, r Request) (*auth.Credentials, error)
}

// Request is the identity that credentials are made of, and their use.
type Request struct {
	auth.Identity
	Address   auth.Address      // of the repository
	TokenUser string            // user name that the Repository gives to tokens
	Place     string            // where the identity was found, for people
	TLS       *auth.Credentials // authorities and client certificate for token endpoints
	resource  string            // of Azure, that the token is for; "" = Azure DevOps
}

// env returns the look-up of variables: among the keys, and in the environment where the
// identity may be that of this host.
func (r Request) env(g *registry) func(string) string {
	return func(name string) string {
		// Another key of a Secret would choose the endpoint at which the identity of this host is shown.
		if v := r.Text(name); v != "" && (r.Trusted || r.Declares(name)) {
			return v
		}
		if r.Own() || r.Trusted {
			return g.o.Getenv(name)
		}
		return ""
	}
}

// othersInEnv reports whether the environment has another value for a name than the
// keys. Its other variables then belong to another identity.
func (r Request) othersInEnv(g *registry, name string) bool {
	mine, theirs := r.Text(name), g.o.Getenv(name)
	return mine != "" && theirs != "" && mine != theirs
}

// file reads a file that a variable names. Keys of a namespace must not name any: their
// author would read the files of this host.
func (r Request) file(path string) ([]byte, error) {
	if !r.Own() && !r.Trusted {
		return nil, errors.New("only keys of a credentials directory or of the config file may name a file")
	}
	return fileid.Read(path, fileid.MaxSettings)
}

// key returns the cache key of the token for this request.
func (r Request) key(scope string) auth.TokenKey {
	return auth.TokenKey{Owner: r.Place, Secret: r.Fingerprint() + " " + r.TLS.Fingerprint(), Scope: scope}
}

// Apps makes installation tokens of GitHub Apps.
type Apps interface {
	InstallationToken(ctx context.Context, app auth.AppIdentity) (auth.Token, error)
}

// Options of New. Apps must be set.
type Options struct {
	Apps      Apps
	UserAgent string // "" = limpet
	// AllowInsecure lets secrets travel to token endpoints over plain http.
	AllowInsecure bool
	// Guard checks each address that is dialled, but for metadata servers.
	Guard netx.Guard
	// Getenv reads the environment; nil = os.Getenv.
	Getenv func(string) string
	// Now is the clock while that of a provider is unknown; nil = that of this host.
	Now func() time.Time
	// Tokens is how many tokens are cached for each provider; 0 = DefaultTokens.
	Tokens int
}

// Identities are all providers with their tokens. Safe for concurrent use.
type Identities struct {
	providers map[string]Provider
	tokens    map[string]*auth.Tokens
}

// New makes the providers of auth.Providers.
func New(o Options) *Identities {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Tokens <= 0 {
		o.Tokens = DefaultTokens
	}
	client := &netx.Client{Guard: o.Guard, AllowInsecure: o.AllowInsecure, UserAgent: o.UserAgent, Timeout: callTimeout, Now: o.Now}
	all := &Identities{tokens: map[string]*auth.Tokens{}}
	registryOf := func(name string) *registry {
		all.tokens[name] = auth.NewTokens(o.Tokens).BackOff()
		return &registry{o: o, tokens: all.tokens[name], client: client}
	}
	all.providers = map[string]Provider{
		"aws":    &aws{registryOf("aws")},
		"azure":  &azure{registryOf("azure")},
		"gcp":    &gcp{registryOf("gcp")},
		"github": &github{registryOf("github")},
		"gitlab": gitlab{},
	}
	return all
}

// registry is what each provider works with: its tokens and its calls. After a failure a provider
// is not asked for a while; meanwhile a token that is good is used on, and without one the failure
// is returned again.
type registry struct {
	o      Options
	tokens *auth.Tokens
	client *netx.Client
}

// forget returns the function that drops a token which was refused.
func (g *registry) forget(key auth.TokenKey, token auth.Token) func() {
	return func() { g.tokens.Refused(key, token.Value) }
}

// Counts returns the counters of the tokens of each provider.
func (i *Identities) Counts() map[string]auth.TokenCounts {
	out := make(map[string]auth.TokenCounts, len(i.tokens))
	for name, tokens := range i.tokens {
		out[name] = tokens.Counts()
	}
	return out
}

// Source completes what from finds: an identity becomes a token. Where from has nothing and the
// Repository asks for a provider, the identity of this host is used. Errors of providers are of
// type *netx.Error.
func (i *Identities) Source(from auth.Source) auth.Source {
	return func(ctx context.Context, l auth.Lookup) (*auth.Credentials, error) {
		if err := auth.CheckProvider(l.Provider); err != nil {
			return nil, invalid("choose the provider", "%w", err)
		}
		found, err := from(ctx, l)
		if err != nil {
			return nil, err
		}
		r := Request{TokenUser: l.TokenUser, TLS: &auth.Credentials{}, Place: "this host"}
		if found != nil {
			r.TLS = found.ForOtherHost()
		}
		switch {
		case found != nil && found.Identity != nil:
			r.Identity, r.Place = *found.Identity, found.Source
			r.TLS.ClientCert, r.TLS.ClientKey = found.ClientCert, found.ClientKey
		case found.Empty() && l.Provider != "" && l.Provider != auth.Generic:
			r.Identity = auth.Identity{Provider: l.Provider}
		default:
			return found, nil
		}
		if r.Address, err = auth.ParseAddress(l.URL); err != nil {
			return found, nil // the URL is checked by its user
		}
		if err := r.checkHost(); err != nil {
			return nil, err
		}
		made, err := i.providers[r.Provider].Credentials(ctx, r)
		if err != nil {
			return nil, err
		}
		made.Source = r.Provider + " identity of " + r.Place
		made.CA, made.ClientCert, made.ClientKey, made.Proxy = r.TLS.CA, r.TLS.ClientCert, r.TLS.ClientKey, r.TLS.Proxy
		return made, nil
	}
}

// cloudHosts are the Git hosts that a cloud makes tokens for; one that begins with a dot
// stands for all below it. Source: the vendors' clone URLs.
var cloudHosts = map[string][]string{
	"aws":   {".amazonaws.com", ".amazonaws.com.cn"}, // of them CodeCommit alone, see region
	"azure": {"dev.azure.com", ".visualstudio.com"},
	"gcp":   {"source.developers.google.com", ".sourcemanager.dev"},
}

// checkHost refuses to make a token for a host that it is not for.
func (r Request) checkHost() error {
	op := "use provider " + r.Provider
	if r.Address.Scheme != "https" && r.Address.Scheme != "http" {
		return invalid(op, "it is for https, and the url is of %s", r.Address.Scheme)
	}
	at := cloudHosts[r.Provider]
	switch {
	case r.Bound:
		return nil
	case len(at) == 0 && r.Own():
		return invalid(op, "the repository has no secret with its keys, and a host has no such identity")
	case len(at) == 0:
		return nil
	case r.Address.Scheme != "https":
		return invalid(op, "its tokens go over https only")
	case r.Own() && !r.Trusted && len(r.TLS.CA)+len(r.TLS.ClientCert) > 0:
		// The author of an authority could impersonate the host.
		return invalid(op, "the identity of this host is not sent to hosts with an authority of a secret: ca.crt and tls.crt must not be set")
	}
	if slices.ContainsFunc(at, func(host string) bool {
		return r.Address.Host == host || strings.HasPrefix(host, ".") && strings.HasSuffix(r.Address.Host, host)
	}) {
		return nil
	}
	return invalid(op, "its tokens are for %s; a rule under git-credentials of the config file can send them to %s",
		strings.Join(at, ", "), r.Address.HostPort())
}

// invalid is a refusal before anything is sent.
func invalid(op, format string, args ...any) error {
	return &netx.Error{Kind: netx.Invalid, Op: op, Err: fmt.Errorf(format, args...)}
}

// github makes installation tokens of GitHub Apps. Over Git the token is the password of the user
// x-access-token.
type github struct{ registry *registry }

func (p *github) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	app, err := r.app()
	if err != nil {
		return nil, err
	}
	key := r.key("installation")
	token, err := p.registry.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.registry.o.Apps.InstallationToken(ctx, app) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: "x-access-token", Password: token.Value, Forget: p.registry.forget(key, token)}, nil
}

// app reads the keys: Flux's as shipped, and those of its RFC.
func (r Request) app() (auth.AppIdentity, error) {
	op := "use the GitHub App of " + r.Place
	app := auth.AppIdentity{
		AppID:        r.Text("githubAppID"),
		Installation: cmp.Or(r.Text("githubAppInstallationID"), r.Text("githubInstallationID")),
		Owner:        r.Text("githubAppInstallationOwner"),
		API:          cmp.Or(r.Text("githubAppBaseURL"), r.Text("githubApiURl"), r.Text("githubApiURL")),
		Secret: &auth.Credentials{CA: r.TLS.CA, ClientCert: r.TLS.ClientCert, ClientKey: r.TLS.ClientKey, Proxy: r.TLS.Proxy, Source: r.Place,
			PrivateKey: []byte(cmp.Or(r.Text("githubAppPrivateKey"), r.Text("githubPrivateKey")))},
	}
	switch {
	case app.AppID == "":
		return app, invalid(op, "the key githubAppID is missing")
	case len(app.Secret.PrivateKey) == 0:
		return app, invalid(op, "the key githubAppPrivateKey is missing")
	case (app.Installation == "") == (app.Owner == ""):
		return app, invalid(op, "exactly one of the keys githubAppInstallationID and githubAppInstallationOwner is needed")
	}
	return app, r.sameHost(op, app.API)
}

// sameHost makes sure that tokens of an API are for the host that is cloned from.
func (r Request) sameHost(op, api string) error {
	u, err := url.Parse(cmp.Or(api, "https://api.github.com"))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http" {
		return invalid(op, "githubAppBaseURL is not an http or https URL without user and query")
	}
	clone, host := strings.TrimPrefix(r.Address.Host, "www."), strings.ToLower(u.Hostname())
	if r.Bound || clone == host || "api."+clone == host {
		return nil
	}
	return invalid(op, "its tokens are for %s, and the repository is at %s; for GitHub Enterprise give githubAppBaseURL",
		host, r.Address.HostPort())
}

// gitlab gives the tokens of GitLab the user names that they need: deploy tokens have one
// of their own, personal, group, project and OAuth tokens use oauth2. GitLab accepts no
// token of another party for Git, so there is no federation.
type gitlab struct{}

func (gitlab) Credentials(_ context.Context, r Request) (*auth.Credentials, error) {
	token := cmp.Or(r.Text("token"), r.Text("password"), r.Text("bearerToken"))
	if !auth.Printable(token) {
		return nil, invalid("use provider gitlab", "%s has neither token, nor username and password, "+
			"or the token contains a space or a control character", r.Place)
	}
	return &auth.Credentials{Username: cmp.Or(r.Text("username"), r.TokenUser, "oauth2"), Password: token}, nil
}
