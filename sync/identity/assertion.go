package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"time"
)

// assertionType says that a client proves itself with a JSON web token. Source:
// RFC 7523 §2.2.
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// Times of the proof of a certificate; a clock may be a minute fast.
const (
	assertionBefore = time.Minute
	assertionLife   = 9 * time.Minute // from its beginning
)

// withAssertion puts the proof of a certificate into a form: PEM with the
// certificate and its unencrypted RSA key. Source: Microsoft, "application
// authentication certificate credentials".
func withAssertion(form url.Values, pem []byte, client, endpoint string, now time.Time) error {
	pair, err := tls.X509KeyPair(pem, pem)
	if err != nil {
		return errors.New("the client certificate is not a PEM certificate with its unencrypted key")
	}
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return errors.New("the key of the client certificate is no RSA key, which Azure wants")
	}
	thumbprint := sha256.Sum256(pair.Certificate[0])
	id := make([]byte, 16)
	rand.Read(id) // never returns an error
	begin := now.Add(-assertionBefore)
	proof, err := jwt(key, map[string]string{"alg": "PS256", "typ": "JWT", "x5t#S256": base64.RawURLEncoding.EncodeToString(thumbprint[:])},
		map[string]any{"aud": endpoint, "iss": client, "sub": client, "jti": hex.EncodeToString(id),
			"nbf": begin.Unix(), "iat": begin.Unix(), "exp": begin.Add(assertionLife).Unix()})
	if err != nil {
		return err
	}
	form.Set("client_assertion_type", assertionType)
	form.Set("client_assertion", proof)
	return nil
}

// jwt signs a JSON web token with RSASSA-PSS, PS256. Source: RFC 7518 §3.5.
func jwt(key *rsa.PrivateKey, header map[string]string, claims map[string]any) (string, error) {
	head, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	if err != nil {
		return "", errors.New("sign with the key of the client certificate: it is damaged")
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
