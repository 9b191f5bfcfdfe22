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

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Where Google makes tokens, and what they are good for: the one scope that
// Cloud Source Repositories and Secure Source Manager take.
const (
	googleScope    = "https://www.googleapis.com/auth/cloud-platform"
	googleTokens   = "https://oauth2.googleapis.com/token"
	googleMetadata = "metadata.google.internal"
	googleAPIs     = ".googleapis.com"
)

// gcp makes access tokens of Google: of a service account's key, by workload
// identity federation, or from the metadata server. Over Git the token is the
// password, and the e-mail address of the account the user.
type gcp struct{ *desk }

// Credentials implements Provider.
func (p *gcp) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	account, err := p.account(r)
	if err != nil {
		return nil, err
	}
	scope := "metadata server"
	if account != nil {
		scope = account.fingerprint // the file of this host may change
	}
	key := r.key(scope)
	token, err := p.token(ctx, key, func(ctx context.Context) (auth.Token, error) {
		switch {
		case account == nil:
			return p.metadata(ctx, r)
		case account.Type == "external_account":
			return p.federated(ctx, r, *account)
		}
		return p.signed(ctx, r, *account)
	})
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: cmp.Or(token.User, "git"), Password: token.Value, Forget: p.refused(key, token)}, nil
}

// account is the JSON that Google hands out for a service account or for a
// federation, nil where there is none.
func (p *gcp) account(r Request) (*googleAccount, error) {
	text, own := []byte(r.Text("gcpServiceAccount")), r.Trusted
	if len(text) == 0 && (r.Own() || r.Trusted) {
		path := p.o.Getenv("GOOGLE_APPLICATION_CREDENTIALS")
		if path == "" {
			return nil, nil
		}
		var err error
		if text, err = r.file(path); err != nil {
			return nil, invalid("read GOOGLE_APPLICATION_CREDENTIALS", "%w", err)
		}
		own = true
	}
	account, err := readGoogleAccount(text, own)
	if err != nil {
		return nil, invalid("use the Google account from "+r.Place, "%w", err)
	}
	return &account, nil
}

// Times of the proof of a service account, by Google's clock. Source: Google, "Using
// OAuth 2.0 for server to server applications"; a clock may be a little fast.
const (
	proofBefore = 10 * time.Second
	proofLife   = time.Hour // from its beginning, which is the longest
)

// signed exchanges a proof made with the key of a service account. x/oauth2 would sign
// by the clock of this host alone.
func (p *gcp) signed(ctx context.Context, r Request, a googleAccount) (auth.Token, error) {
	c := call{op: "get a token for a service account", identity: "service account " + a.Email + " from " + r.Place, method: http.MethodPost, url: a.TokenURI, tls: r.TLS}
	refuse := func(err error) error {
		return &netx.Error{Kind: netx.Invalid, Op: c.op, Identity: c.identity, Err: err}
	}
	key, err := rsaKey([]byte(a.PrivateKey))
	if err != nil {
		return auth.Token{}, refuse(err)
	}
	header := map[string]string{"alg": "RS256", "typ": "JWT"}
	if a.PrivateKeyID != "" {
		header["kid"] = a.PrivateKeyID
	}
	got, err := p.timely(ctx, func(now time.Time) (call, error) {
		begin := now.Add(-proofBefore)
		proof, err := jwt(key, header,
			map[string]any{"iss": a.Email, "scope": googleScope, "aud": a.TokenURI, "iat": begin.Unix(), "exp": begin.Add(proofLife).Unix()})
		if err != nil {
			return c, refuse(err)
		}
		c.body, c.secrets = url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {proof}}.Encode(), []string{a.PrivateKey, proof}
		return c, nil
	})
	if err != nil {
		return auth.Token{}, err
	}
	token, err := c.token(got)
	token.User = a.Email
	return token, err
}

// federated exchanges the token of another party for one of Google, and that for
// one of a service account where the JSON names it.
func (p *gcp) federated(ctx context.Context, r Request, a googleAccount) (auth.Token, error) {
	c := call{op: "get a token by workload identity federation", identity: "workload identity " + a.Audience + " from " + r.Place, tls: r.TLS}
	token, err := p.library(ctx, c, func(ctx context.Context, b *below) (*oauth2.Token, time.Duration, error) {
		source, err := externalaccount.NewTokenSource(ctx, externalaccount.Config{
			Audience: a.Audience, SubjectTokenType: a.SubjectTokenType, TokenURL: a.TokenURL,
			ServiceAccountImpersonationURL:             a.ImpersonationURL,
			ServiceAccountImpersonationLifetimeSeconds: a.Impersonation.Lifetime,
			Scopes: []string{googleScope}, SubjectTokenSupplier: &subject{p, r, a.Source, b}})
		if err != nil {
			return nil, 0, err
		}
		made, err := source.Token()
		if a.ImpersonationURL != "" && err == nil {
			return made, made.Expiry.Sub(b.at), nil // Google's clock
		}
		return made, b.untilLocal(made), err
	})
	token.User = a.impersonated()
	return token, err
}

// metadata asks the metadata server, which knows the service account of the
// machine or of the pod.
func (p *gcp) metadata(ctx context.Context, r Request) (auth.Token, error) {
	if !r.Own() && !r.Trusted {
		return auth.Token{}, invalid("get a token of Google", "%s has no key gcpServiceAccount", r.Place)
	}
	host := cmp.Or(p.o.Getenv("GCE_METADATA_HOST"), googleMetadata)
	c := call{op: "get a token from the metadata server", identity: "service account of this host", method: http.MethodGet, near: true,
		url: "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token", header: map[string]string{"Metadata-Flavor": "Google"}}
	token, err := p.flavoured(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	_, made, err := grant(token.body, token.at)
	if err != nil {
		return auth.Token{}, c.fail(netx.Protocol, 0, err)
	}
	c.op, c.url = "get its address from the metadata server", strings.TrimSuffix(c.url, "token")+"email"
	email, err := p.flavoured(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	made.User = strings.TrimSpace(string(email.body))
	if !printable(made.User) || strings.Contains(made.User, ":") {
		return auth.Token{}, c.fail(netx.Protocol, 0, errors.New("the answer is no e-mail address"))
	}
	return made, nil
}

// flavoured asks a metadata server, and makes sure that it is Google's: in a
// strange network something else may answer.
func (p *gcp) flavoured(ctx context.Context, c call) (answer, error) {
	got, err := p.do(ctx, c)
	if err == nil && got.header.Get("Metadata-Flavor") != "Google" {
		err = c.fail(netx.Unavailable, 0, errors.New("something else answers in its place: the header Metadata-Flavor is missing"))
	}
	return got, err
}

// library has x/oauth2 make a token, with our own calls below it.
func (p *gcp) library(ctx context.Context, c call, obtain func(context.Context, *below) (*oauth2.Token, time.Duration, error)) (auth.Token, error) {
	b := &below{d: p.desk, ctx: ctx, c: c}
	client := &http.Client{Transport: b}
	made, life, err := obtain(context.WithValue(ctx, oauth2.HTTPClient, client), b)
	switch {
	case b.failed != nil:
		return auth.Token{}, b.failed
	case err != nil && b.asked == "":
		return auth.Token{}, &netx.Error{Kind: netx.Invalid, Op: c.op, Identity: c.identity, Err: errors.New(c.clean(err.Error()))}
	}
	var token auth.Token
	if err == nil {
		token, err = living(made.AccessToken, life)
	} else {
		err = errors.New("the answer is not that of a token endpoint") // the library may repeat it
	}
	if err != nil {
		c.method, c.url = http.MethodPost, b.asked
		return auth.Token{}, c.fail(netx.Protocol, 0, err)
	}
	return token, nil
}

// googleAccount is what is used of the JSON. Source: Google's documentation of
// service account keys and AIP-4117.
type googleAccount struct {
	Type         string `json:"type"`
	Email        string `json:"client_email"`
	PrivateKey   string `json:"private_key"`
	PrivateKeyID string `json:"private_key_id"`
	TokenURI     string `json:"token_uri"`

	Audience         string        `json:"audience"`
	SubjectTokenType string        `json:"subject_token_type"`
	TokenURL         string        `json:"token_url"`
	ImpersonationURL string        `json:"service_account_impersonation_url"`
	Source           subjectSource `json:"credential_source"`
	Impersonation    struct {
		Lifetime int `json:"token_lifetime_seconds"`
	} `json:"service_account_impersonation"`

	fingerprint string
}

// readGoogleAccount reads and judges the JSON. own says that who runs this agent
// has written it; another one names no file and no host but Google's. Errors do
// not repeat it.
func readGoogleAccount(text []byte, own bool) (googleAccount, error) {
	var a googleAccount
	if json.Unmarshal(text, &a) != nil {
		return a, errors.New("it is no JSON of a Google account")
	}
	a.fingerprint = auth.Identity{Keys: map[string][]byte{"": text}}.Fingerprint()
	var at []string
	switch a.Type {
	case "service_account":
		if !printable(a.Email) || strings.Contains(a.Email, ":") || a.PrivateKey == "" {
			return a, errors.New("client_email and private_key are missing in it")
		}
		a.TokenURI = cmp.Or(a.TokenURI, googleTokens)
		at = []string{a.TokenURI}
	case "external_account":
		if !own {
			return a, errors.New("an external_account names files and hosts; only a credentials directory or the config file of limpet may hold one")
		}
		if a.Audience == "" || a.SubjectTokenType == "" || a.TokenURL == "" {
			return a, errors.New("audience, subject_token_type and token_url are missing in it")
		}
		if at = []string{a.TokenURL}; a.ImpersonationURL != "" {
			at = append(at, a.ImpersonationURL)
		}
		if err := a.Source.check(); err != nil {
			return a, err
		}
	default:
		return a, errors.New("its type is none of service_account and external_account")
	}
	for _, endpoint := range at {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
			return a, errors.New("a URL in it is not an http or https URL")
		case !own && (u.Scheme != "https" || u.Port() != "" || !strings.HasSuffix(strings.ToLower(u.Hostname()), googleAPIs)):
			return a, errors.New("a URL in it is not below https://*" + googleAPIs)
		}
	}
	return a, nil
}

// impersonated is the e-mail address in the URL that makes tokens for a service
// account, "" without one.
func (a googleAccount) impersonated() string {
	_, rest, _ := strings.Cut(a.ImpersonationURL, "/serviceAccounts/")
	email, _, ok := strings.Cut(rest, ":generateAccessToken")
	if email, err := url.PathUnescape(email); err == nil && ok && printable(email) && !strings.Contains(email, ":") {
		return email
	}
	return ""
}
