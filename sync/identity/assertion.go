package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
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
func withAssertion(form url.Values, certificate []byte, client, endpoint string, now time.Time) error {
	pair, err := tls.X509KeyPair(certificate, certificate)
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

// rsaKey reads the private key of a service account: PEM with PKCS#8, as Google hands
// it out, or PKCS#1. The error does not repeat it.
func rsaKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("its private_key is no PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("its private_key is no unencrypted RSA key")
	}
	return key, nil
}

// jwt signs a JSON web token: RSASSA-PKCS1 where the header says RS256, else
// RSASSA-PSS, PS256. Source: RFC 7518 §3.3 and §3.5.
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
	var signature []byte
	if header["alg"] == "RS256" {
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	} else {
		signature, err = rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	}
	if err != nil {
		return "", errors.New("sign with the private key: it is damaged")
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
