package forge

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Times of a JSON web token for GitHub, which accepts at most 10 minutes from now
// and none from the future: a clock may be a minute fast.
const (
	jwtBefore = time.Minute
	jwtLife   = 9 * time.Minute // from its beginning: it ends 8 minutes from now
)

// ProofLife is the lifetime of the proof of an App's identity.
const ProofLife = jwtLife - jwtBefore

// minKeyBits is the size of GitHub's keys. Unit: bits.
const minKeyBits = 2048

// privateKey parses the key of a GitHub App: PEM with PKCS#1, which GitHub creates, or
// PKCS#8, which other tools convert it to, as it is or in base64. Errors do not repeat
// the key.
func privateKey(text []byte) (*rsa.PrivateKey, error) {
	if !bytes.Contains(text, []byte("-----BEGIN ")) {
		decoded, err := base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields(text), nil)))
		if err != nil {
			return nil, errors.New("it is neither a PEM private key nor base64 of one")
		}
		text = decoded
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM(text)
	switch {
	case errors.Is(err, jwt.ErrKeyMustBePEMEncoded):
		return nil, errors.New("it is neither a PEM private key nor base64 of one")
	case errors.Is(err, jwt.ErrNotRSAPrivateKey):
		return nil, errors.New("it is no RSA key, which GitHub requires")
	case err != nil:
		return nil, errors.New("it is no unencrypted PKCS#1 or PKCS#8 key")
	case key.N.BitLen() < minKeyBits:
		return nil, errors.New("it is an RSA key of less than 2048 bits")
	}
	return key, nil
}

// appJWT returns the proof that its bearer is the App, by the clock of the host. Source:
// docs.github.com, "Generating a JSON Web Token for a GitHub App".
func appJWT(key *rsa.PrivateKey, appID string, now time.Time) (string, error) {
	begin := now.Add(-jwtBefore)
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer:    appID,
		IssuedAt:  jwt.NewNumericDate(begin),
		ExpiresAt: jwt.NewNumericDate(begin.Add(jwtLife)),
	})
	text, err := token.SignedString(key)
	if err != nil {
		return "", errors.New("sign a token with the private key: it is damaged")
	}
	return text, nil
}
