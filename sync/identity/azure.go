package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// azureDevOps is the application that tokens for Git are made for. Source:
// Microsoft's documentation of Azure DevOps; Flux.
const azureDevOps = "499b84ac-1321-427f-aa17-267ca6975798"

// Where Azure makes tokens.
const (
	azureAuthority = "https://login.microsoftonline.com/"
	azureMetadata  = "http://169.254.169.254"
)

// azureAuthorities are those that a Secret may name: public, US government,
// China. Source: Microsoft's list of national clouds.
var azureAuthorities = []string{"login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn", "login.chinacloudapi.cn"}

// azure makes tokens of Microsoft Entra ID for Azure DevOps. It tries a service
// principal, then workload identity, then the managed identity of the host, and
// takes the first token.
type azure struct {
	*desk
	arcAgent, arcTokens string // where they are
}

// errNotSet says that a source of identity is not configured here.
var errNotSet = errors.New("not configured")

// Credentials implements Provider.
func (p *azure) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	key := r.key("azure-devops")
	token, err := p.token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.first(ctx, r) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Bearer: token.Value, Forget: p.refused(key, token)}, nil
}

// first asks the sources in turn.
func (p *azure) first(ctx context.Context, r Request) (auth.Token, error) {
	var failed []error
	for _, source := range []func(context.Context, Request) (auth.Token, error){p.principal, p.workload, p.managed} {
		token, err := source(ctx, r)
		if err == nil {
			return token, nil
		}
		if ctx.Err() != nil {
			return auth.Token{}, err
		}
		if !errors.Is(err, errNotSet) {
			failed = append(failed, err)
		}
	}
	return auth.Token{}, together("get a token for Azure DevOps", r, failed)
}

// together is one error of all that have failed. Its kind is that of the first:
// what was configured most explicitly.
func together(op string, r Request, failed []error) error {
	switch len(failed) {
	case 0:
		return invalid(op, "%s has no identity of %s: none of its keys or variables are set", r.Place, r.Provider)
	case 1:
		return failed[0]
	}
	all := failed[0]
	for _, err := range failed[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	e := &netx.Error{Kind: netx.KindOf(failed[0]), Op: op, Err: all}
	if first, ok := errors.AsType[*netx.Error](failed[0]); ok {
		e.RetryAfter = first.RetryAfter
	}
	return e
}

// principal is a service principal with a secret or a certificate.
func (p *azure) principal(ctx context.Context, r Request) (auth.Token, error) {
	env := r.env(p.desk)
	tenant, client := env("AZURE_TENANT_ID"), env("AZURE_CLIENT_ID")
	if r.others(p.desk, "AZURE_CLIENT_ID") {
		env = r.Text
	}
	secret := env("AZURE_CLIENT_SECRET")
	pem := []byte(env("AZURE_CLIENT_CERTIFICATE"))
	if path := env("AZURE_CLIENT_CERTIFICATE_PATH"); path != "" && len(pem) == 0 && secret == "" && tenant != "" && client != "" {
		var err error
		if pem, err = r.file(path); err != nil {
			return auth.Token{}, invalid("use the certificate of service principal "+client, "%w", err)
		}
	}
	if tenant == "" || client == "" || secret == "" && len(pem) == 0 {
		return auth.Token{}, errNotSet
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "scope": {azureDevOps + "/.default"}}
	c := call{op: "get a token for a service principal", identity: fmt.Sprintf("service principal %s of tenant %s, from %s", client, tenant, r.Place)}
	if secret != "" {
		form.Set("client_secret", secret)
		c.secrets = []string{secret}
	}
	return p.exchange(ctx, r, c, form, func(now time.Time, endpoint string) error {
		if secret != "" {
			return nil
		}
		return withAssertion(form, pem, client, endpoint, now)
	})
}

// workload is a token of a Kubernetes service account, which Entra ID trusts. It
// is read again each time: it is replaced every hour.
func (p *azure) workload(ctx context.Context, r Request) (auth.Token, error) {
	env := r.env(p.desk)
	tenant, client, path := env("AZURE_TENANT_ID"), env("AZURE_CLIENT_ID"), env("AZURE_FEDERATED_TOKEN_FILE")
	if tenant == "" || client == "" || path == "" || env("AZURE_AUTHORITY_HOST") == "" {
		return auth.Token{}, errNotSet
	}
	op := "get a token by workload identity"
	assertion, err := r.file(path)
	if err != nil {
		return auth.Token{}, invalid(op, "read AZURE_FEDERATED_TOKEN_FILE: %w", err)
	}
	subject := strings.TrimSpace(string(assertion))
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "scope": {azureDevOps + "/.default"},
		"client_assertion_type": {assertionType}, "client_assertion": {subject}}
	c := call{op: op, identity: fmt.Sprintf("workload identity of client %s in tenant %s, from %s", client, tenant, r.Place), secrets: []string{subject}}
	return p.exchange(ctx, r, c, form, func(time.Time, string) error { return nil })
}

// exchange asks the token endpoint of a tenant. sign completes the form for it, at a
// time by the clock there.
func (p *azure) exchange(ctx context.Context, r Request, c call, form url.Values, sign func(now time.Time, endpoint string) error) (auth.Token, error) {
	env := r.env(p.desk)
	tenant := env("AZURE_TENANT_ID")
	if strings.ContainsFunc(tenant, func(x rune) bool {
		return !(x >= 'a' && x <= 'z' || x >= 'A' && x <= 'Z' || x >= '0' && x <= '9' || x == '-' || x == '.')
	}) {
		return auth.Token{}, invalid(c.op, "AZURE_TENANT_ID is neither an id nor a domain")
	}
	authority, err := url.Parse(cmp.Or(env("AZURE_AUTHORITY_HOST"), azureAuthority))
	if err != nil || authority.Host == "" {
		return auth.Token{}, invalid(c.op, "AZURE_AUTHORITY_HOST is not a URL")
	}
	if !r.Own() && !r.Trusted && !slices.Contains(azureAuthorities, strings.ToLower(authority.Host)) {
		return auth.Token{}, invalid(c.op, "AZURE_AUTHORITY_HOST of a Secret is one of %s", strings.Join(azureAuthorities, ", "))
	}
	c.method, c.url, c.tls = http.MethodPost, strings.TrimSuffix(authority.String(), "/")+"/"+tenant+"/oauth2/v2.0/token", r.TLS
	known := c.secrets
	got, err := p.timely(ctx, func(now time.Time) (call, error) {
		if err := sign(now, c.url); err != nil {
			return c, invalid(c.op, "%w", err)
		}
		c.body, c.secrets = form.Encode(), append(slices.Clone(known), form.Get("client_assertion"))
		return c, nil
	})
	if err != nil {
		return auth.Token{}, err
	}
	return c.token(got)
}

// granted makes a call that is answered with a token.
func (d *desk) granted(ctx context.Context, c call) (auth.Token, error) {
	got, err := d.do(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	return c.token(got)
}

// token reads the answer to a call.
func (c call) token(got answer) (auth.Token, error) {
	_, token, err := grant(got.body, got.at)
	if err != nil {
		return auth.Token{}, c.fail(netx.Protocol, 0, err)
	}
	return token, nil
}

// managed is the identity that Azure gives to the machine, in its own halls or by
// Azure Arc elsewhere.
func (p *azure) managed(ctx context.Context, r Request) (auth.Token, error) {
	if !r.Own() && !r.Trusted {
		return auth.Token{}, errNotSet
	}
	env := r.env(p.desk)
	query := url.Values{"api-version": {"2018-02-01"}, "resource": {azureDevOps}}
	who := "managed identity of this host"
	if client := env("AZURE_CLIENT_ID"); client != "" {
		query.Set("client_id", client)
		who = "managed identity " + client
	}
	if p.onArc(env) {
		return p.arc(ctx, r, env("AZURE_CLIENT_ID"), who)
	}
	// The variable is the one that azidentity reads.
	base := strings.TrimSuffix(cmp.Or(env("AZURE_POD_IDENTITY_AUTHORITY_HOST"), azureMetadata), "/")
	return p.granted(ctx, call{op: "get a token from the metadata server", identity: who, method: http.MethodGet, near: true,
		url: base + "/metadata/identity/oauth2/token?" + query.Encode(), header: map[string]string{"Metadata": "true"}})
}
