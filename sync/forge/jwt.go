package forge

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"time"
)

// Times of a JSON web token for GitHub, which takes at most 10 minutes from now
// and none from the future: a clock may be a minute fast.
const (
	jwtBefore = time.Minute
	jwtLife   = 9 * time.Minute // from its beginning: it ends 8 minutes from now
)

// ProofLife is for how long the proof of an App's identity is good.
const ProofLife = jwtLife - jwtBefore

// shortestKey is what GitHub's keys have, in bits; shorter ones are refused by
// crypto/rsa below 1024.
const shortestKey = 2048

// privateKey reads the key of a GitHub App: PEM with PKCS#1, which GitHub hands
// out, or PKCS#8, which other tools make of it, as it is or in base64. Errors do
// not repeat the key.
func privateKey(text []byte) (*rsa.PrivateKey, error) {
	wrong := errors.New("it is neither a PEM private key nor base64 of one")
	if !bytes.Contains(text, []byte("-----BEGIN ")) {
		decoded, err := base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields(text), nil)))
		if err != nil {
			return nil, wrong
		}
		text = decoded
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, wrong
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, longEnough(key)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is no unencrypted PKCS#1 or PKCS#8 key")
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("it is no RSA key, which GitHub wants")
	}
	return key, longEnough(key)
}

func longEnough(key *rsa.PrivateKey) error {
	if key.N.BitLen() < shortestKey {
		return errors.New("it is an RSA key of less than 2048 bits")
	}
	return nil
}

// appJWT is the proof that its bearer is the App, by a clock that the host
// shares. Source: docs.github.com, "Generating a JSON Web Token for a GitHub
// App"; RFC 7519 and RFC 7515.
func appJWT(key *rsa.PrivateKey, appID string, now time.Time) (string, error) {
	begin := now.Add(-jwtBefore)
	claims, err := json.Marshal(struct {
		IssuedAt int64  `json:"iat"`
		Expires  int64  `json:"exp"`
		Issuer   string `json:"iss"`
	}{begin.Unix(), begin.Add(jwtLife).Unix(), appID})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.AppendEncode([]byte(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`))+"."), claims)
	sum := sha256.Sum256(text)
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", errors.New("sign a token with the private key: it is damaged")
	}
	return string(base64.RawURLEncoding.AppendEncode(append(text, '.'), signature)), nil
}
