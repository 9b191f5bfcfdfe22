package identity

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

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

// azureTenant is the form of the ID or domain of a tenant.
var azureTenant = regexp.MustCompile(`^[A-Za-z0-9.-]+$`)

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
	key := r.key(cmp.Or(r.resource, "azure-devops"))
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
		return p.exchange(ctx, r, c, tenant, url.Values{"client_id": {client}, "client_secret": {secret}})
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
		return p.assert(ctx, r, c, tenant, client, strings.TrimSpace(string(subject)))
	case !r.Own() && !r.Trusted:
		return auth.Token{}, invalid("get a token for Azure DevOps", "%s has no identity of azure: none of its keys are set", r.Place)
	}
	return p.managed(ctx, env, cmp.Or(r.resource, azureDevOps))
}

// certificate authenticates with a certificate: PEM with the certificate, others of its chain behind
// it, and its unencrypted RSA key, by which an assertion is signed. Source: Microsoft, "Certificate
// credentials".
func (p *azure) certificate(
	ctx context.Context, r Request, c netx.Call, tenant, client string, text []byte,
) (token auth.Token, err error) {
	pair, err := tls.X509KeyPair(text, text)
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if err != nil || !ok || key.N.BitLen() > auth.MaxRSA { // the error may repeat the key
		return token, invalid(c.Op, "the client certificate is not a PEM certificate with its unencrypted key")
	}
	endpoint, err := p.endpoint(r, c.Op, tenant)
	if err != nil {
		return token, err
	}
	err = p.registry.client.InTime(endpoint, func(now time.Time) error {
		begin := now.Add(-proofBefore)
		unsigned := jwt.NewWithClaims(jwt.SigningMethodPS256, jwt.MapClaims{
			"aud": endpoint,
			"iss": client,
			"sub": client,
			"jti": rand.Text(),
			"nbf": begin.Unix(),
			"exp": begin.Add(proofLife).Unix(),
		})
		sum := sha256.Sum256(pair.Certificate[0])
		unsigned.Header["x5t#S256"] = base64.StdEncoding.EncodeToString(sum[:])
		proof, err := unsigned.SignedString(key)
		if err != nil { // the error may repeat the key
			return invalid(c.Op, "the private key is damaged")
		}
		token, err = p.assert(ctx, r, c, tenant, client, proof)
		return err
	})
	return token, err
}

// assert exchanges an assertion of another party. Source: RFC 7523 §2.2.
func (p *azure) assert(ctx context.Context, r Request, c netx.Call, tenant, client, proof string) (auth.Token, error) {
	c.Secrets = append(c.Secrets, proof)
	return p.exchange(ctx, r, c, tenant, url.Values{
		"client_id":             {client},
		"client_assertion":      {proof},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	})
}

// exchange asks the token endpoint of a tenant. It is asked once: the next attempt is that of the
// registry.
func (p *azure) exchange(ctx context.Context, r Request, c netx.Call, tenant string, body url.Values) (auth.Token, error) {
	endpoint, err := p.endpoint(r, c.Op, tenant)
	if err != nil {
		return auth.Token{}, err
	}
	body.Set("grant_type", "client_credentials")
	body.Set("scope", cmp.Or(r.resource, azureDevOps)+"/.default")
	c.Method, c.URL, c.Body = http.MethodPost, endpoint, []byte(body.Encode())
	return p.registry.token(ctx, c)
}

// endpoint returns the URL that makes the tokens of a tenant.
func (p *azure) endpoint(r Request, op, tenant string) (string, error) {
	authority, err := url.Parse(cmp.Or(r.env(p.registry)("AZURE_AUTHORITY_HOST"), azureAuthority))
	switch {
	case err != nil || authority.Host == "":
		return "", invalid(op, "AZURE_AUTHORITY_HOST is not a URL")
	case !r.Own() && !r.Trusted && !slices.Contains(azureAuthorities, strings.ToLower(authority.Host)):
		return "", invalid(op, "AZURE_AUTHORITY_HOST of a Secret is one of %s", strings.Join(azureAuthorities, ", "))
	case !azureTenant.MatchString(tenant):
		return "", invalid(op, "invalid tenantID: AZURE_TENANT_ID is the ID or the domain of a tenant")
	}
	return authority.JoinPath(tenant, "oauth2/v2.0/token").String(), nil
}

// managed asks for the identity that Azure gives to the machine.
func (p *azure) managed(ctx context.Context, env func(string) string, resource string) (auth.Token, error) {
	query := url.Values{"api-version": {"2018-02-01"}, "resource": {resource}}
	identity := "managed identity of this host"
	if client := env("AZURE_CLIENT_ID"); client != "" {
		query.Set("client_id", client)
		identity = "managed identity " + client
	}
	// The variable is the one that Azure's own libraries read.
	base := strings.TrimSuffix(cmp.Or(env("AZURE_POD_IDENTITY_AUTHORITY_HOST"), azureMetadata), "/")
	return p.registry.token(ctx, netx.Call{Op: "get a token from the metadata server", Identity: identity, Method: http.MethodGet, Near: true,
		URL: base + "/metadata/identity/oauth2/token?" + query.Encode(), Header: map[string]string{"Metadata": "true"}})
}
