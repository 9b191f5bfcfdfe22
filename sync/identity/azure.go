package identity

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

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
var azureAuthorities = []string{
	"login.microsoftonline.com",
	"login.microsoftonline.us",
	"login.partner.microsoftonline.cn",
	"login.chinacloudapi.cn",
}

// Times of the proof of a certificate; a clock may be a minute fast.
const (
	assertionBefore = time.Minute
	assertionLife   = 9 * time.Minute // from its beginning
)

// azure makes tokens of Microsoft Entra ID for Azure DevOps. It tries a service
// principal, then workload identity, then the managed identity of the host, and
// takes the first token.
type azure struct{ *registry }

// errNotSet is returned by a source of identity that is not configured.
var errNotSet = errors.New("not configured")

// Credentials implements Provider.
func (p *azure) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	key := r.key("azure-devops")
	token, err := p.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.first(ctx, r) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Bearer: token.Value, Forget: p.forget(key, token)}, nil
}

// first asks the sources in turn.
func (p *azure) first(ctx context.Context, r Request) (auth.Token, error) {
	var failed []error
	for _, source := range []func(context.Context, Request) (auth.Token, error){p.principal, p.workload, p.managed} {
		token, err := source(ctx, r)
		if err == nil || ctx.Err() != nil {
			return token, err
		}
		if !errors.Is(err, errNotSet) {
			failed = append(failed, err)
		}
	}
	return auth.Token{}, combined(r, failed)
}

// combined returns one error for several sources. Its kind is that of the first: what
// was configured most explicitly.
func combined(r Request, failed []error) error {
	const op = "get a token for Azure DevOps"
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
	env := r.env(p.registry)
	tenant, client := env("AZURE_TENANT_ID"), env("AZURE_CLIENT_ID")
	if r.othersInEnv(p.registry, "AZURE_CLIENT_ID") {
		env = r.Text
	}
	secret, pem := env("AZURE_CLIENT_SECRET"), []byte(env("AZURE_CLIENT_CERTIFICATE"))
	if path := env("AZURE_CLIENT_CERTIFICATE_PATH"); path != "" && len(pem) == 0 && secret == "" && tenant != "" && client != "" {
		var err error
		if pem, err = r.file(path); err != nil {
			return auth.Token{}, invalid("use the certificate of service principal "+client, "%w", err)
		}
	}
	if tenant == "" || client == "" || secret == "" && len(pem) == 0 {
		return auth.Token{}, errNotSet
	}
	c := call{
		op:       "get a token for a service principal",
		identity: fmt.Sprintf("service principal %s of tenant %s, from %s", client, tenant, r.Place),
	}
	if secret != "" {
		c.secrets = []string{secret}
		return p.exchange(ctx, r, c, func(o azcore.ClientOptions) (azcore.TokenCredential, error) {
			return azidentity.NewClientSecretCredential(tenant, client, secret,
				&azidentity.ClientSecretCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: true})
		})
	}
	return p.retryInTime(func(now time.Time) (auth.Token, error) {
		audience := strings.TrimSuffix(authorityOf(r.env(p.registry)), "/") + "/" + tenant + "/oauth2/v2.0/token"
		proof, err := certificateProof(pem, client, audience, now)
		if err != nil {
			return auth.Token{}, invalid(c.op, "%w", err)
		}
		return p.asserted(ctx, r, c, tenant, client, proof)
	})
}

// authorityOf returns the authority: a tenant is below it.
func authorityOf(env func(string) string) string {
	return cmp.Or(env("AZURE_AUTHORITY_HOST"), azureAuthority)
}

// workload is a token of a Kubernetes service account, which Entra ID trusts. It
// is read again each time: it is replaced every hour.
func (p *azure) workload(ctx context.Context, r Request) (auth.Token, error) {
	env := r.env(p.registry)
	tenant, client, path := env("AZURE_TENANT_ID"), env("AZURE_CLIENT_ID"), env("AZURE_FEDERATED_TOKEN_FILE")
	if tenant == "" || client == "" || path == "" || env("AZURE_AUTHORITY_HOST") == "" {
		return auth.Token{}, errNotSet
	}
	c := call{
		op:       "get a token by workload identity",
		identity: fmt.Sprintf("workload identity of client %s in tenant %s, from %s", client, tenant, r.Place),
	}
	subject, err := r.file(path)
	if err != nil {
		return auth.Token{}, invalid(c.op, "read AZURE_FEDERATED_TOKEN_FILE: %w", err)
	}
	return p.asserted(ctx, r, c, tenant, client, strings.TrimSpace(string(subject)))
}

// asserted exchanges a proof for a token.
func (p *azure) asserted(ctx context.Context, r Request, c call, tenant, client, proof string) (auth.Token, error) {
	c.secrets = []string{proof}
	return p.exchange(ctx, r, c, func(o azcore.ClientOptions) (azcore.TokenCredential, error) {
		return azidentity.NewClientAssertionCredential(tenant, client, func(context.Context) (string, error) { return proof, nil },
			&azidentity.ClientAssertionCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: true})
	})
}

// credentialFunc makes a credential of azidentity.
type credentialFunc func(azcore.ClientOptions) (azcore.TokenCredential, error)

// exchange has azidentity ask the token endpoint of a tenant. It is asked once: the
// next attempt is that of the registry.
func (p *azure) exchange(ctx context.Context, r Request, c call, newCredential credentialFunc) (auth.Token, error) {
	authority, err := url.Parse(authorityOf(r.env(p.registry)))
	if err != nil || authority.Host == "" {
		return auth.Token{}, invalid(c.op, "AZURE_AUTHORITY_HOST is not a URL")
	}
	if !r.Own() && !r.Trusted && !slices.Contains(azureAuthorities, strings.ToLower(authority.Host)) {
		return auth.Token{}, invalid(c.op, "AZURE_AUTHORITY_HOST of a Secret is one of %s", strings.Join(azureAuthorities, ", "))
	}
	c.tls = r.TLS
	t := &through{g: p.registry, ctx: ctx, c: c}
	source, err := newCredential(azcore.ClientOptions{
		Cloud:     cloud.Configuration{ActiveDirectoryAuthorityHost: authority.String()},
		Transport: t,
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{Disabled: true},
	})
	var made azcore.AccessToken
	if err == nil {
		made, err = source.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{azureDevOps + "/.default"}})
	}
	return t.token(made.Token, time.Until(made.ExpiresOn), err)
}

// certificateProof signs the proof of a certificate: PEM with the certificate and its
// unencrypted RSA key. azidentity would sign by the clock of this host alone. Source:
// Microsoft, "application authentication certificate credentials".
func certificateProof(certificate []byte, client, audience string, now time.Time) (string, error) {
	pair, err := tls.X509KeyPair(certificate, certificate)
	if err != nil {
		return "", errors.New("the client certificate is not a PEM certificate with its unencrypted key")
	}
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return "", errors.New("the key of the client certificate is no RSA key, which Azure wants")
	}
	thumbprint, begin := sha256.Sum256(pair.Certificate[0]), now.Add(-assertionBefore)
	header := map[string]any{"x5t#S256": base64.RawURLEncoding.EncodeToString(thumbprint[:])}
	return signJWT(jwt.SigningMethodPS256, key, header, jwt.MapClaims{
		"aud": audience,
		"iss": client,
		"sub": client,
		"jti": uuid.NewString(),
		"nbf": begin.Unix(),
		"iat": begin.Unix(),
		"exp": begin.Add(assertionLife).Unix(),
	})
}

// managed is the identity that Azure gives to the machine. azidentity is of no use
// here: it has one cache for the whole process, from which a token that was refused
// cannot be dropped.
func (p *azure) managed(ctx context.Context, r Request) (auth.Token, error) {
	if !r.Own() && !r.Trusted {
		return auth.Token{}, errNotSet
	}
	env := r.env(p.registry)
	query := url.Values{"api-version": {"2018-02-01"}, "resource": {azureDevOps}}
	identity := "managed identity of this host"
	if client := env("AZURE_CLIENT_ID"); client != "" {
		query.Set("client_id", client)
		identity = "managed identity " + client
	}
	// The variable is the one that azidentity reads.
	base := strings.TrimSuffix(cmp.Or(env("AZURE_POD_IDENTITY_AUTHORITY_HOST"), azureMetadata), "/")
	c := call{op: "get a token from the metadata server", identity: identity, method: http.MethodGet, near: true,
		url: base + "/metadata/identity/oauth2/token?" + query.Encode(), header: map[string]string{"Metadata": "true"}}
	return c.token(p.do(ctx, c))
}
