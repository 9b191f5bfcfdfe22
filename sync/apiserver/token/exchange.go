package token

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"limpet/state/atomicfile"
	"limpet/sync/auth"
)

// ExchangePath is the path of the token exchange, as in the README of Grafana's controller.
const ExchangePath = "/sign/access-token"

const (
	// tokenLifetime is the lifetime of an access token without expiresIn. Clients
	// drop a token 15 s before its expiry, so it must be well above that.
	tokenLifetime = 10 * time.Minute
	// maxTokenLifetime bounds expiresIn.
	maxTokenLifetime = time.Hour

	maxExchangeBody = 64 << 10
	maxAudiences    = 20
)

// Exchange serves POST /sign/access-token: it exchanges a long-lived token for a
// short-lived access token. It is safe for concurrent use.
type Exchange struct {
	signer *Signer
	token  [sha256.Size]byte
	log    *slog.Logger
	now    func() time.Time
}

// NewExchange returns the exchange of a long-lived token. An empty one is an error: it
// would match every request without one.
func NewExchange(signer *Signer, token string, log *slog.Logger) (*Exchange, error) {
	if token == "" {
		return nil, errors.New("make token exchange: no token to exchange; set --token")
	}
	return &Exchange{signer: signer, token: sha256.Sum256([]byte(token)), log: log, now: time.Now}, nil
}

type exchangeRequest struct {
	Namespace string   `json:"namespace"`
	Audiences []string `json:"audiences"`
	ExpiresIn *int64   `json:"expiresIn"` // seconds
}

type exchangeAnswer struct {
	Data   map[string]string `json:"data,omitempty"` // the token
	Status string            `json:"status"`
	Error  string            `json:"error,omitempty"`
}

// ServeHTTP implements http.Handler.
func (e *Exchange) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != ExchangePath {
		e.refuse(w, http.StatusNotFound, "the token exchange is at "+ExchangePath)
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		e.refuse(w, http.StatusMethodNotAllowed, "use POST")
		return
	}
	given := sha256.Sum256([]byte(Bearer(req.Header.Get("Authorization"))))
	if subtle.ConstantTimeCompare(given[:], e.token[:]) != 1 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		e.refuse(w, http.StatusUnauthorized, "the token in Authorization: Bearer is missing or wrong")
		return
	}
	claims, err := e.claims(req)
	if err != nil {
		e.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	token, err := e.signer.sign(claims)
	if err != nil {
		e.log.Error("sign access token", "err", err)
		e.refuse(w, http.StatusInternalServerError, "the token could not be signed")
		return
	}
	e.log.Debug("exchanged token",
		"namespace", claims.Namespace, "audiences", strings.Join(claims.Audience, ","), "client", req.RemoteAddr)
	e.answer(w, http.StatusOK, exchangeAnswer{Data: map[string]string{"token": token}, Status: "success"})
}

func (e *Exchange) claims(req *http.Request) (Claims, error) {
	var body exchangeRequest
	data, err := io.ReadAll(http.MaxBytesReader(nil, req.Body, maxExchangeBody))
	if err != nil {
		return Claims{}, errors.New("the body is too large or was cut off")
	}
	if json.Unmarshal(data, &body) != nil {
		return Claims{}, errors.New(`the body must be JSON like {"namespace":"*","audiences":["provisioning.grafana.app"]}`)
	}
	switch {
	case body.Namespace == "":
		return Claims{}, errors.New(`namespace is missing; "*" means all`)
	case len(body.Audiences) == 0 || len(body.Audiences) > maxAudiences:
		return Claims{}, fmt.Errorf("audiences must name between 1 and %d API groups", maxAudiences)
	case body.ExpiresIn != nil && *body.ExpiresIn <= 0:
		return Claims{}, errors.New("expiresIn must be a positive number of seconds")
	}
	now, lifetime := e.now(), tokenLifetime
	if body.ExpiresIn != nil {
		lifetime = time.Duration(min(*body.ExpiresIn, int64(maxTokenLifetime/time.Second))) * time.Second
	}
	return Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    tokenIssuer,
			Subject:   "access-policy:limpet",
			Audience:  body.Audiences,
			ID:        rand.Text(),
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
		},
		Namespace: body.Namespace,
	}, nil
}

func (e *Exchange) refuse(w http.ResponseWriter, code int, text string) {
	e.answer(w, code, exchangeAnswer{Status: "error", Error: text})
}

func (e *Exchange) answer(w http.ResponseWriter, code int, a exchangeAnswer) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(a); err != nil {
		e.log.Debug("write token exchange response", "err", err)
	}
}

// Bearer returns the token of a header value; "" if the scheme is another one.
func Bearer(value string) string {
	scheme, token, ok := strings.Cut(strings.TrimSpace(value), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Access tokens are JSON Web Tokens in the shape of Grafana's: ES256, type at+jwt. ES256 and not EdDSA, because
// Grafana's own client library reads the lifetime of a token only if it knows the algorithm, and it knows ES256.

// Claims are the claims of an access token.
type Claims struct {
	jwt.RegisteredClaims
	Namespace   string   `json:"namespace"` // "*" = all
	Permissions []string `json:"permissions"`
}

const (
	signKeyName  = "limpet-sign.key"
	tokenIssuer  = "limpet"
	tokenType    = "at+jwt"
	maxTokenSize = 16 << 10
	// clockLeeway is how far in the future a token may be issued: host clocks at
	// the edge are not exact. Expiry has no leeway.
	clockLeeway = 30 * time.Second
)

var signingMethod = jwt.SigningMethodES256

// Signer makes access tokens and checks its own. It is safe for concurrent use.
type Signer struct {
	key *ecdsa.PrivateKey
	kid string
}

// NewSigner reads the signing key in dir, or creates one there (0600). It returns
// an error of the file system, or one for a file that is not such a key.
func NewSigner(dir string) (*Signer, error) {
	path := filepath.Join(dir, signKeyName)
	data, err := auth.ReadPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = makeSignKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open signing key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("open signing key: %s holds no PEM block; move it away and a new one is made", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("open signing key: %s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("open signing key: %s is not a P-256 key", path)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("open signing key: %w", err)
	}
	sum := sha256.Sum256(public)
	return &Signer{key: key, kid: base64.RawURLEncoding.EncodeToString(sum[:12])}, nil
}

// NewKey makes a P-256 key, also in PEM form.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

func makeSignKey(path string) ([]byte, error) {
	_, data, err := NewKey()
	if err != nil {
		return nil, err
	}
	err = atomicfile.Create(path, 0o600, atomicfile.Data(data))
	if errors.Is(err, fs.ErrExist) {
		return auth.ReadPrivate(path)
	}
	return data, err
}

// sign returns a token with exactly these claims.
func (s *Signer) sign(c Claims) (string, error) {
	if c.Permissions == nil {
		c.Permissions = []string{}
	}
	t := jwt.NewWithClaims(signingMethod, c)
	t.Header["typ"], t.Header["kid"] = tokenType, s.kid
	signed, err := t.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}

// Errors of Verify beside those of package jwt.
var (
	errTooLong  = errors.New("token is too long")
	errOtherKey = errors.New("token was signed by another key")
	errCritical = errors.New("token has critical extensions")
	errFuture   = errors.New("token was issued in the future")
)

// Verify reads a token that this Signer made and that is valid at now. Its errors never repeat the token.
func (s *Signer) Verify(token string, now time.Time) (Claims, error) {
	var c Claims
	if len(token) > maxTokenSize {
		return c, errTooLong
	}
	_, err := jwt.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errCritical
		}
		if t.Header["kid"] != s.kid {
			return nil, errOtherKey
		}
		return &s.key.PublicKey, nil
	}, jwt.WithValidMethods([]string{signingMethod.Alg()}), jwt.WithIssuer(tokenIssuer), jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(), jwt.WithTimeFunc(func() time.Time { return now }))
	if err != nil {
		return Claims{}, err
	}
	if c.IssuedAt != nil && c.IssuedAt.After(now.Add(clockLeeway)) {
		return Claims{}, errFuture
	}
	return c, nil
}
