package identity

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/pem"
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

// azure makes tokens of Microsoft Entra ID for Azure DevOps: of a service principal, else by
// workload identity, else of the managed identity of the host. The first that is configured counts.
type azure struct{ registry *registry }

func (p *azure) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	key := r.key("azure-devops")
	token, err := p.registry.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.mint(ctx, r) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Bearer: token.Value, Forget: p.registry.forget(key, token)}, nil
}

// mint asks the first source that is configured.
func (p *azure) mint(ctx context.Context, r Request) (auth.Token, error) {
	env := r.env(p.registry)
	tenant, client, authority := env("AZURE_TENANT_ID"), env("AZURE_CLIENT_ID"), env("AZURE_AUTHORITY_HOST")
	proof := env // of the same client
	if r.othersInEnv(p.registry, "AZURE_CLIENT_ID") {
		proof = r.Text
	}
	secret, certificate, path := proof("AZURE_CLIENT_SECRET"), proof("AZURE_CLIENT_CERTIFICATE"), proof("AZURE_CLIENT_CERTIFICATE_PATH")
	federated, known := env("AZURE_FEDERATED_TOKEN_FILE"), tenant != "" && client != ""
	c := netx.Call{
		Op:       "get a token for a service principal",
		Identity: fmt.Sprintf("service principal %s of tenant %s, from %s", client, tenant, r.Place),
		Trust:    r.TLS,
	}
	switch {
	case known && secret != "":
		c.Secrets = []string{secret}
		return p.exchange(ctx, r, c, func(o azcore.ClientOptions) (azcore.TokenCredential, error) {
			return azidentity.NewClientSecretCredential(tenant, client, secret,
				&azidentity.ClientSecretCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: true})
		})
	case known && certificate != "":
		return p.certificate(ctx, r, c, tenant, client, []byte(certificate))
	case known && path != "":
		text, err := r.file(path)
		if err != nil {
			return auth.Token{}, invalid("use the certificate of service principal "+client, "%w", err)
		}
		return p.certificate(ctx, r, c, tenant, client, text)
	case known && federated != "" && authority != "":
		// A token of a Kubernetes service account, which Entra ID trusts. It is read again
		// each time: it is replaced every hour.
		c.Op = "get a token by workload identity"
		c.Identity = fmt.Sprintf("workload identity of client %s in tenant %s, from %s", client, tenant, r.Place)
		subject, err := r.file(federated)
		if err != nil {
			return auth.Token{}, invalid(c.Op, "read AZURE_FEDERATED_TOKEN_FILE: %w", err)
		}
		proof := strings.TrimSpace(string(subject))
		c.Secrets = []string{proof}
		return p.exchange(ctx, r, c, func(o azcore.ClientOptions) (azcore.TokenCredential, error) {
			return azidentity.NewClientAssertionCredential(tenant, client, func(context.Context) (string, error) { return proof, nil },
				&azidentity.ClientAssertionCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: true})
		})
	case !r.Own() && !r.Trusted:
		return auth.Token{}, invalid("get a token for Azure DevOps", "%s has no identity of azure: none of its keys are set", r.Place)
	}
	return p.managed(ctx, env)
}

// certificate authenticates with a certificate: PEM with the certificate and its unencrypted RSA
// key.
func (p *azure) certificate(ctx context.Context, r Request, c netx.Call, tenant, client string, text []byte) (auth.Token, error) {
	if block, _ := pem.Decode(text); block == nil { // it would be read as PKCS#12, which may ask for hours of work
		text = nil
	}
	certificates, key, err := azidentity.ParseCertificates(text, nil)
	if of, ok := key.(*rsa.PrivateKey); err == nil && (!ok || of.N.BitLen() > auth.MaxRSA) {
		err = errors.New("no such key")
	}
	if err != nil { // the error may repeat the key
		return auth.Token{}, invalid(c.Op, "the client certificate is not a PEM certificate with its unencrypted key")
	}
	return p.exchange(ctx, r, c, func(o azcore.ClientOptions) (azcore.TokenCredential, error) {
		return azidentity.NewClientCertificateCredential(tenant, client, certificates, key,
			&azidentity.ClientCertificateCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: true})
	})
}

// exchange has azidentity ask the token endpoint of a tenant. It is asked once: the
// next attempt is that of the registry.
func (p *azure) exchange(
	ctx context.Context, r Request, c netx.Call, newCredential func(azcore.ClientOptions) (azcore.TokenCredential, error),
) (auth.Token, error) {
	authority, err := url.Parse(cmp.Or(r.env(p.registry)("AZURE_AUTHORITY_HOST"), azureAuthority))
	if err != nil || authority.Host == "" {
		return auth.Token{}, invalid(c.Op, "AZURE_AUTHORITY_HOST is not a URL")
	}
	if !r.Own() && !r.Trusted && !slices.Contains(azureAuthorities, strings.ToLower(authority.Host)) {
		return auth.Token{}, invalid(c.Op, "AZURE_AUTHORITY_HOST of a Secret is one of %s", strings.Join(azureAuthorities, ", "))
	}
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

// managed asks for the identity that Azure gives to the machine. azidentity is of no use here: it
// has one cache for the whole process, from which a token that was refused cannot be dropped.
func (p *azure) managed(ctx context.Context, env func(string) string) (auth.Token, error) {
	query := url.Values{"api-version": {"2018-02-01"}, "resource": {azureDevOps}}
	identity := "managed identity of this host"
	if client := env("AZURE_CLIENT_ID"); client != "" {
		query.Set("client_id", client)
		identity = "managed identity " + client
	}
	// The variable is the one that azidentity reads.
	base := strings.TrimSuffix(cmp.Or(env("AZURE_POD_IDENTITY_AUTHORITY_HOST"), azureMetadata), "/")
	return p.registry.token(ctx, netx.Call{Op: "get a token from the metadata server", Identity: identity, Method: http.MethodGet, Near: true,
		URL: base + "/metadata/identity/oauth2/token?" + query.Encode(), Header: map[string]string{"Metadata": "true"}})
}
