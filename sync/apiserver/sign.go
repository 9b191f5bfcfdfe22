package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"strings"
	"time"

	"limpet/sync/auth"
)

// Access tokens are JSON Web Tokens in the shape of Grafana's: ES256, type
// at+jwt. ES256 and not EdDSA, because Grafana's own client library reads the
// lifetime of a token only if it knows the algorithm, and it knows ES256.

// tokenClaims are the claims of an access token. Times are seconds since the
// epoch.
type tokenClaims struct {
	Issuer      string      `json:"iss"`
	Subject     string      `json:"sub"`
	Audience    []string    `json:"aud"`
	IssuedAt    int64       `json:"iat"`
	Expires     int64       `json:"exp"`
	ID          string      `json:"jti,omitempty"`
	Namespace   string      `json:"namespace"` // "*" = all
	Permissions []string    `json:"permissions"`
	Actor       *tokenActor `json:"act,omitempty"`
}

// tokenActor is who acts for the subject of a token.
type tokenActor struct {
	Subject string `json:"sub"`
}

const (
	signKeyName   = "limpet-sign.key"
	tokenIssuer   = "limpet"
	tokenAlg      = "ES256"
	tokenType     = "at+jwt"
	maxTokenSize  = 16 << 10
	signatureSize = 64
	// clockLeeway is how far a token may come from the future: host clocks at
	// the edge are not exact. Expiry has no leeway.
	clockLeeway = 30 * time.Second
)

// Signer makes access tokens and checks its own. It is safe for concurrent use.
type Signer struct {
	key *ecdsa.PrivateKey
	kid string
}

// NewSigner reads the signing key in dir, or makes one there (0600). The errors
// are those of the file system, or say that the file is not such a key.
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

func makeSignKey(path string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	err = writeFile(path, data, 0o600, true)
	if errors.Is(err, fs.ErrExist) {
		return auth.ReadPrivate(path)
	}
	return data, err
}

type tokenHeader struct {
	Alg  string          `json:"alg"`
	Typ  string          `json:"typ"`
	Kid  string          `json:"kid"`
	Crit json.RawMessage `json:"crit,omitempty"`
}

// sign makes a token of the claims as they are.
func (s *Signer) sign(c tokenClaims) (string, error) {
	if c.Permissions == nil {
		c.Permissions = []string{}
	}
	header, err := json.Marshal(tokenHeader{Alg: tokenAlg, Typ: tokenType, Kid: s.kid})
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	signed := segment(header) + "." + segment(body)
	sum := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	signature := make([]byte, signatureSize)
	r.FillBytes(signature[:signatureSize/2])
	v.FillBytes(signature[signatureSize/2:])
	return signed + "." + segment(signature), nil
}

// verify reads a token that this Signer made and that is valid at now. Errors
// say what is wrong with "it", the token, and never repeat it.
func (s *Signer) verify(token string, now time.Time) (tokenClaims, error) {
	var c tokenClaims
	if len(token) > maxTokenSize {
		return c, errors.New("it is too long")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("it is not a JSON Web Token")
	}
	var header tokenHeader
	if err := readSegment(parts[0], &header); err != nil {
		return c, errors.New("its header cannot be read")
	}
	switch {
	case header.Alg != tokenAlg:
		return c, errors.New("its algorithm is not ES256")
	case header.Kid != s.kid:
		return c, errors.New("it was signed by another key")
	case header.Crit != nil:
		return c, errors.New("it has critical extensions")
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(signature) != signatureSize {
		return c, errors.New("its signature cannot be read")
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	r, v := new(big.Int).SetBytes(signature[:signatureSize/2]), new(big.Int).SetBytes(signature[signatureSize/2:])
	if !ecdsa.Verify(&s.key.PublicKey, sum[:], r, v) {
		return c, errors.New("its signature is wrong")
	}
	if err := readSegment(parts[1], &c); err != nil {
		return c, errors.New("its claims cannot be read")
	}
	switch {
	case c.Issuer != tokenIssuer:
		return c, errors.New("it is from another issuer")
	case c.Expires <= now.Unix():
		return c, errors.New("it has expired")
	case c.IssuedAt > now.Add(clockLeeway).Unix():
		return c, errors.New("it is from the future")
	}
	return c, nil
}

func segment(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func readSegment(text string, into any) error {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
