package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Where Google makes tokens, and what they are good for: the one scope that
// Cloud Source Repositories and Secure Source Manager accept.
const (
	googleScope    = "https://www.googleapis.com/auth/cloud-platform"
	googleTokens   = "https://oauth2.googleapis.com/token"
	googleMetadata = "metadata.google.internal"
	googleAPIs     = ".googleapis.com"
)

// Times of the proof of a service account, by Google's clock. Source: Google, "Using
// OAuth 2.0 for server to server applications"; a clock may be a little fast.
const (
	proofBefore = 10 * time.Second
	proofLife   = time.Hour // from its beginning, which is the longest
)

// gcp makes access tokens of Google: of a service account's key, by workload identity federation,
// or from the metadata server. Over Git the token is the password, and the e-mail address of the
// account the user.
type gcp struct{ registry *registry }

func (p *gcp) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	account, err := p.account(r)
	if err != nil {
		return nil, err
	}
	mint, scope := p.metadata, "metadata server"
	if account != nil {
		mint, scope = account.mint, account.fingerprint // the file of this host may change
	}
	key := r.key(scope)
	token, err := p.registry.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return mint(ctx, r) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: cmp.Or(token.User, "git"), Password: token.Value, Forget: p.registry.forget(key, token)}, nil
}

// googleAccount is what is used of the JSON. Source: Google's documentation of service account keys
// and AIP-4117.
type googleAccount struct {
	Type         string `json:"type"`
	Email        string `json:"client_email"`
	PrivateKey   string `json:"private_key"`
	PrivateKeyID string `json:"private_key_id"`
	TokenURI     string `json:"token_uri"`

	Audience         string                           `json:"audience"`
	SubjectTokenType string                           `json:"subject_token_type"`
	TokenURL         string                           `json:"token_url"`
	ImpersonationURL string                           `json:"service_account_impersonation_url"`
	Source           externalaccount.CredentialSource `json:"credential_source"`
	Impersonation    struct {
		Lifetime int `json:"token_lifetime_seconds"`
	} `json:"service_account_impersonation"`

	fingerprint string
	mint        func(ctx context.Context, r Request) (auth.Token, error)
}

// account returns the JSON of a service account or a federation, nil where there is none.
func (p *gcp) account(r Request) (*googleAccount, error) {
	text, own := []byte(r.Text("gcpServiceAccount")), r.Trusted
	if len(text) == 0 && (r.Own() || r.Trusted) {
		path := p.registry.o.Getenv("GOOGLE_APPLICATION_CREDENTIALS")
		if path == "" {
			return nil, nil
		}
		var err error
		if text, err = r.file(path); err != nil {
			return nil, invalid("read GOOGLE_APPLICATION_CREDENTIALS", "%w", err)
		}
		own = true
	}
	a, err := parseGoogleAccount(text, own)
	if err != nil {
		return nil, invalid("use the Google account from "+r.Place, "%w", err)
	}
	a.mint = func(ctx context.Context, r Request) (auth.Token, error) { return p.signed(ctx, r, a) }
	if a.Type == "external_account" {
		a.mint = func(ctx context.Context, r Request) (auth.Token, error) { return p.federated(ctx, r, a) }
	}
	return &a, nil
}

// parseGoogleAccount parses and checks the JSON. own reports that the operator of this agent has
// written it; any other names no file and no host but Google's. Errors do not repeat it.
func parseGoogleAccount(text []byte, own bool) (googleAccount, error) {
	var a googleAccount
	if json.Unmarshal(text, &a) != nil {
		return a, errors.New("it is no JSON of a Google account")
	}
	a.fingerprint = auth.Identity{Keys: map[string][]byte{"": text}}.Fingerprint()
	a.TokenURI = cmp.Or(a.TokenURI, googleTokens)
	endpoint := a.TokenURI
	switch {
	case a.Type == "service_account" && (!auth.Printable(a.Email) || strings.Contains(a.Email, ":") || a.PrivateKey == ""):
		return a, errors.New("client_email and private_key are missing in it")
	case a.Type == "service_account":
	case a.Type != "external_account":
		return a, errors.New("its type is none of service_account and external_account")
	case !own:
		return a, errors.New("an external_account names files and hosts; " +
			"only a credentials directory or the config file of limpet may hold one")
	case a.Source.Executable != nil:
		return a, errors.New("credential_source names a program, and limpet starts none")
	case a.Source.EnvironmentID != "" || (a.Source.File == "") == (a.Source.URL == ""):
		return a, errors.New("credential_source is to name a file or a URL")
	default:
		endpoint = a.TokenURL
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "":
		return a, errors.New("the URL of its tokens is none")
	case !own && (u.Scheme != "https" || u.Port() != "" || !strings.HasSuffix(strings.ToLower(u.Hostname()), googleAPIs)):
		return a, errors.New("a URL in it is not below https://*" + googleAPIs)
	}
	return a, nil
}

// signed exchanges a proof made with the key of a service account. x/oauth2 would sign by the clock
// of this host alone.
func (p *gcp) signed(ctx context.Context, r Request, a googleAccount) (token auth.Token, err error) {
	c := netx.Call{Op: "get a token for a service account", Identity: "service account " + a.Email + " from " + r.Place,
		Method: http.MethodPost, URL: a.TokenURI, Trust: r.TLS}
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(a.PrivateKey))
	if err != nil || key.N.BitLen() > auth.MaxRSA { // the error may repeat the key
		return token, invalid(c.Op, "the private_key of %s is no PEM of an unencrypted RSA key of at most %d bits", c.Identity, auth.MaxRSA)
	}
	err = p.registry.client.InTime(a.TokenURI, func(now time.Time) error {
		begin := now.Add(-proofBefore)
		unsigned := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
			"iss":   a.Email,
			"scope": googleScope,
			"aud":   a.TokenURI,
			"iat":   begin.Unix(),
			"exp":   begin.Add(proofLife).Unix(),
		})
		if a.PrivateKeyID != "" {
			unsigned.Header["kid"] = a.PrivateKeyID
		}
		proof, err := unsigned.SignedString(key)
		if err != nil { // the error may repeat the key
			return invalid(c.Op, "the private key is damaged")
		}
		c.Body = []byte(url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {proof}}.Encode())
		c.Secrets = []string{a.PrivateKey, proof}
		token, err = p.registry.token(ctx, c)
		return err
	})
	token.User = a.Email
	return token, err
}

// federated has x/oauth2 exchange the token of another party for one of Google, and that for one of
// a service account when the JSON names it. It reads the token of the other party each time anew.
func (p *gcp) federated(ctx context.Context, r Request, a googleAccount) (auth.Token, error) {
	t := &through{g: p.registry, ctx: ctx, near: a.Source.URL, c: netx.Call{Op: "get a token by workload identity federation",
		Identity: "workload identity " + a.Audience + " from " + r.Place, Trust: r.TLS}}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: t})
	source, err := externalaccount.NewTokenSource(ctx, externalaccount.Config{
		Audience:                       a.Audience,
		SubjectTokenType:               a.SubjectTokenType,
		TokenURL:                       a.TokenURL,
		ServiceAccountImpersonationURL: a.ImpersonationURL,
		ServiceAccountImpersonationLifetimeSeconds: a.Impersonation.Lifetime,
		Scopes:           []string{googleScope},
		CredentialSource: &a.Source,
	})
	made := &oauth2.Token{}
	if err == nil {
		made, err = source.Token()
	}
	if err != nil {
		return t.token("", 0, err)
	}
	life := time.Until(made.Expiry)
	if a.ImpersonationURL != "" {
		life = made.Expiry.Sub(t.at) // Google's clock
	}
	token, err := t.token(made.AccessToken, life, nil)
	token.User = a.impersonated()
	return token, err
}

// impersonated returns the e-mail address in the URL that makes tokens for a service account, ""
// without one.
func (a googleAccount) impersonated() string {
	_, rest, _ := strings.Cut(a.ImpersonationURL, "/serviceAccounts/")
	email, _, ok := strings.Cut(rest, ":generateAccessToken")
	if email, err := url.PathUnescape(email); err == nil && ok && auth.Printable(email) && !strings.Contains(email, ":") {
		return email
	}
	return ""
}

// metadata asks the metadata server, which knows the service account of the machine or of the pod.
func (p *gcp) metadata(ctx context.Context, r Request) (auth.Token, error) {
	if !r.Own() && !r.Trusted {
		return auth.Token{}, invalid("get a token of Google", "%s has no key gcpServiceAccount", r.Place)
	}
	host := cmp.Or(p.registry.o.Getenv("GCE_METADATA_HOST"), googleMetadata)
	c := netx.Call{Op: "get a token from the metadata server", Identity: "service account of this host", Method: http.MethodGet, Near: true,
		URL:    "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token",
		Header: map[string]string{"Metadata-Flavor": "Google"}}
	got, err := p.flavoured(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	token, err := parseGrant(got.Body)
	if err != nil {
		return auth.Token{}, malformed(c, err.Error())
	}
	c.Op, c.URL = "get its address from the metadata server", strings.TrimSuffix(c.URL, "token")+"email"
	if got, err = p.flavoured(ctx, c); err != nil {
		return auth.Token{}, err
	}
	token.User = strings.TrimSpace(string(got.Body))
	if !auth.Printable(token.User) || strings.Contains(token.User, ":") {
		return auth.Token{}, malformed(c, "the answer is no e-mail address")
	}
	return token, nil
}

// flavoured asks a metadata server, and makes sure that it is Google's: in a foreign network
// another server may answer.
func (p *gcp) flavoured(ctx context.Context, c netx.Call) (netx.Answer, error) {
	got, err := p.registry.do(ctx, c)
	if err == nil && got.Header.Get("Metadata-Flavor") != "Google" {
		err = c.Fail(netx.Unavailable, 0, errors.New("not a metadata server of Google: no header Metadata-Flavor"))
	}
	return got, err
}
