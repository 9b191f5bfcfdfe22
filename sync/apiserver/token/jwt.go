package token

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"limpet/state/atomicfile"
	"limpet/sync/auth"
)

// Access tokens are JSON Web Tokens in the shape of Grafana's: ES256, type at+jwt. ES256 and not
// EdDSA, because Grafana's own client library reads the lifetime of a token only if it knows the
// algorithm, and it knows ES256.

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

// Verify reads a token that this Signer made and that is valid at now. Its errors never repeat the
// token.
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
