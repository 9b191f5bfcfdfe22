package identity

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

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

// gcp makes access tokens of Google: of a service account's key, by workload
// identity federation, or from the metadata server. Over Git the token is the
// password, and the e-mail address of the account the user.
type gcp struct{ *registry }

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
	token, err := p.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) {
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
	return &auth.Credentials{Username: cmp.Or(token.User, "git"), Password: token.Value, Forget: p.forget(key, token)}, nil
}

// account returns the JSON of a service account or a federation, nil where there is none.
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
	account, err := parseGoogleAccount(text, own)
	if err != nil {
		return nil, invalid("use the Google account from "+r.Place, "%w", err)
	}
	return &account, nil
}

// signed exchanges a proof made with the key of a service account. x/oauth2 would sign
// by the clock of this host alone.
func (p *gcp) signed(ctx context.Context, r Request, a googleAccount) (auth.Token, error) {
	c := call{op: "get a token for a service account", identity: "service account " + a.Email + " from " + r.Place,
		method: http.MethodPost, url: a.TokenURI, tls: r.TLS}
	refuse := func(err error) (auth.Token, error) {
		return auth.Token{}, &netx.Error{Kind: netx.Invalid, Op: c.op, Identity: c.identity, Err: err}
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(a.PrivateKey))
	if err != nil { // the error may repeat the key
		return refuse(errors.New("its private_key is no PEM of an unencrypted RSA key"))
	}
	header := map[string]any{}
	if a.PrivateKeyID != "" {
		header["kid"] = a.PrivateKeyID
	}
	token, err := p.retryInTime(func(now time.Time) (auth.Token, error) {
		begin := now.Add(-proofBefore)
		proof, err := signJWT(jwt.SigningMethodRS256, key, header, jwt.MapClaims{
			"iss":   a.Email,
			"scope": googleScope,
			"aud":   a.TokenURI,
			"iat":   begin.Unix(),
			"exp":   begin.Add(proofLife).Unix(),
		})
		if err != nil {
			return refuse(err)
		}
		c.body = url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {proof}}.Encode()
		c.secrets = []string{a.PrivateKey, proof}
		return c.token(p.do(ctx, c))
	})
	token.User = a.Email
	return token, err
}

// metadata asks the metadata server, which knows the service account of the machine or
// of the pod.
func (p *gcp) metadata(ctx context.Context, r Request) (auth.Token, error) {
	if !r.Own() && !r.Trusted {
		return auth.Token{}, invalid("get a token of Google", "%s has no key gcpServiceAccount", r.Place)
	}
	host := cmp.Or(p.o.Getenv("GCE_METADATA_HOST"), googleMetadata)
	c := call{op: "get a token from the metadata server", identity: "service account of this host", method: http.MethodGet, near: true,
		url:    "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token",
		header: map[string]string{"Metadata-Flavor": "Google"}}
	token, err := c.token(p.flavoured(ctx, c))
	if err != nil {
		return auth.Token{}, err
	}
	c.op, c.url = "get its address from the metadata server", strings.TrimSuffix(c.url, "token")+"email"
	email, err := p.flavoured(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	token.User = strings.TrimSpace(string(email.body))
	if !printable(token.User) || strings.Contains(token.User, ":") {
		return auth.Token{}, c.fail(netx.Protocol, 0, errors.New("the answer is no e-mail address"))
	}
	return token, nil
}

// flavoured asks a metadata server, and makes sure that it is Google's: in a foreign
// network another server may answer.
func (p *gcp) flavoured(ctx context.Context, c call) (answer, error) {
	got, err := p.do(ctx, c)
	if err == nil && got.header.Get("Metadata-Flavor") != "Google" {
		err = c.fail(netx.Unavailable, 0, errors.New("another server answers in its place: the header Metadata-Flavor is missing"))
	}
	return got, err
}
