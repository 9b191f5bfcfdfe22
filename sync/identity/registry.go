package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/golang-jwt/jwt/v5"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// azureManagement is what the token is made for that a registry of Azure takes. Source: Flux.
const azureManagement = "https://management.azure.com"

// registryHosts are the container registries of each cloud, that of AWS with its region. Source: Flux.
var registryHosts = map[string]*regexp.Regexp{
	"aws":   regexp.MustCompile(`^[0-9]+\.dkr[.-]ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$`),
	"azure": regexp.MustCompile(`^[a-z0-9-]+\.azurecr\.(?:io|cn|de|us)$`),
	"gcp":   regexp.MustCompile(`^(?:(?:[a-z]+\.)?gcr\.io|[a-z0-9-]+-docker\.pkg\.dev)$`),
}

// Registry returns user and password of the identity of this host for a container registry of a
// cloud.
func (i *Identities) Registry(ctx context.Context, provider, host string, proxy *netx.Proxy) (*auth.Credentials, error) {
	at := registryHosts[provider]
	if at == nil || !at.MatchString(host) {
		return nil, invalid("use provider "+provider, "its identity is for registries of that cloud, and %s is none", host)
	}
	r := Request{Identity: auth.Identity{Provider: provider}, Place: "this host", TLS: &auth.Credentials{Proxy: proxy}, resource: azureManagement}
	switch p := i.providers[provider].(type) {
	case *gcp:
		made, err := p.Credentials(ctx, r)
		if err == nil {
			made.Username = "oauth2accesstoken"
		}
		return made, err
	case *azure:
		return p.registry.login(ctx, r, host, func(ctx context.Context) (auth.Token, error) { return p.registryToken(ctx, r, host) })
	case *aws:
		region := at.FindStringSubmatch(host)[1]
		return p.registry.login(ctx, r, host, func(ctx context.Context) (auth.Token, error) { return p.registryToken(ctx, r, region) })
	}
	return nil, invalid("use provider "+provider, "it has no registries")
}

// login returns the cached login of a registry.
func (g *registry) login(
	ctx context.Context, r Request, host string, mint func(context.Context) (auth.Token, error),
) (*auth.Credentials, error) {
	key := r.key("registry " + host)
	token, err := g.tokens.Token(ctx, key, mint)
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: token.User, Password: token.Value, Forget: g.forget(key, token)}, nil
}

// registryToken exchanges a token of Entra ID for one of the registry. Source: Microsoft,
// "Authenticate with an Azure container registry"; Flux.
func (p *azure) registryToken(ctx context.Context, r Request, host string) (auth.Token, error) {
	of, err := p.mint(ctx, r)
	if err != nil {
		return auth.Token{}, err
	}
	c := netx.Call{Op: "get a login for the registry", Identity: "identity of " + r.Place, Method: http.MethodPost,
		URL: "https://" + host + "/oauth2/exchange", Trust: r.TLS, Secrets: []string{of.Value}}
	c.Body = []byte(url.Values{"grant_type": {"access_token"}, "service": {host}, "access_token": {of.Value}}.Encode())
	got, err := p.registry.do(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	var out struct {
		Token string `json:"refresh_token"`
	}
	var claims jwt.RegisteredClaims
	if json.Unmarshal(got.Body, &out) == nil {
		_, _, err = jwt.NewParser().ParseUnverified(out.Token, &claims)
	}
	if err != nil || claims.ExpiresAt == nil {
		return auth.Token{}, malformed(c, "the answer is not that of a registry")
	}
	token, err := newToken(out.Token, claims.ExpiresAt.Sub(got.At))
	if err != nil {
		return auth.Token{}, malformed(c, err.Error())
	}
	token.User = "00000000-0000-0000-0000-000000000000"
	return token, nil
}

// registryToken asks the API of registries. Source: AWS, "GetAuthorizationToken".
func (p *aws) registryToken(ctx context.Context, r Request, region string) (token auth.Token, err error) {
	keys, forget, err := p.keys(ctx, r, region)
	if err != nil {
		return token, err
	}
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	c := netx.Call{Op: "get a login for the registry", Identity: "access key " + keys.ID, Method: http.MethodPost, Trust: r.TLS,
		URL:  strings.TrimSuffix(cmp.Or(r.env(p.registry)("AWS_ENDPOINT_URL_ECR"), "https://api.ecr."+region+domain), "/") + "/",
		Body: []byte("{}"), Secrets: []string{keys.Secret, keys.Session}}
	if !keys.valid() {
		return token, invalid(c.Op, "the access key from %s is malformed", r.Place)
	}
	var got netx.Answer
	err = p.registry.client.InTime(c.URL, func(now time.Time) error {
		c.Header = keys.signed(c, now, region, "ecr", map[string]string{"Content-Type": "application/x-amz-json-1.1",
			"X-Amz-Target": "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"})
		got, err = p.registry.do(ctx, c)
		return err
	})
	if err != nil {
		if refused, ok := errors.AsType[*netx.Error](err); ok && refused.Kind == netx.Unauthorized {
			forget()
		}
		return token, err
	}
	var out struct {
		AuthorizationData []struct {
			AuthorizationToken []byte
			ExpiresAt          float64
		}
	}
	if json.Unmarshal(got.Body, &out) != nil || len(out.AuthorizationData) == 0 {
		return token, malformed(c, "the answer holds no login")
	}
	of := out.AuthorizationData[0]
	user, password, _ := strings.Cut(string(of.AuthorizationToken), ":")
	if token, err = newToken(password, time.Unix(int64(of.ExpiresAt), 0).Sub(got.At)); err != nil {
		return token, malformed(c, err.Error())
	}
	token.User = user
	return token, nil
}

// signed returns the headers of a call with those that sign it.
func (k awsKeys) signed(c netx.Call, at time.Time, region, service string, header map[string]string) map[string]string {
	req, err := http.NewRequest(c.Method, c.URL, nil)
	if err != nil {
		return header // Do refuses the URL
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	sum := sha256.Sum256(c.Body)
	keys := sdk.Credentials{AccessKeyID: k.ID, SecretAccessKey: k.Secret, SessionToken: k.Session}
	if err := v4.NewSigner().SignHTTP(req.Context(), keys, req, hex.EncodeToString(sum[:]), service, region, at); err != nil {
		return header // unsigned, which AWS refuses
	}
	for name := range req.Header {
		header[name] = req.Header.Get(name)
	}
	return header
}
