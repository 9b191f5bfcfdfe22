package identity

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// longestLife bounds what an answer may say about the lifetime of a token.
const longestLife = 24 * time.Hour

// grant is the answer of a token endpoint. Source: RFC 6749 §5.1; Azure's metadata
// server writes numbers as text and adds expires_on.
type grant struct {
	Token   string  `json:"access_token"`
	Life    seconds `json:"expires_in"`
	Until   seconds `json:"expires_on"` // of the epoch
	Refresh string  `json:"refresh_token"`
}

// seconds is a number, or the text of one.
type seconds int64

// UnmarshalJSON parses both forms; null is 0.
func (s *seconds) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "null" || text == "" {
		*s = 0
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < -1e15 || n > 1e15 || n != n {
		return errors.New("a number of seconds is malformed")
	}
	*s = seconds(n)
	return nil
}

// parseGrant parses the answer of a token endpoint, received at some time by the clock
// of the other side. Its errors do not repeat the answer.
func parseGrant(body []byte, at time.Time) (grant, auth.Token, error) {
	var g grant
	if json.Unmarshal(body, &g) != nil {
		return grant{}, auth.Token{}, errors.New("the answer is not that of a token endpoint")
	}
	life := time.Duration(min(int64(g.Life), int64(longestLife/time.Second))) * time.Second
	if g.Life <= 0 && g.Until > 0 {
		life = time.Unix(int64(g.Until), 0).Sub(at)
	}
	token, err := newToken(g.Token, life)
	return g, token, err
}

// token parses the answer to a call for a token.
func (c call) token(got answer, err error) (auth.Token, error) {
	if err != nil {
		return auth.Token{}, err
	}
	_, token, err := parseGrant(got.body, got.at)
	if err != nil {
		return auth.Token{}, c.fail(netx.Protocol, 0, err)
	}
	return token, nil
}

// newToken makes a token with a lifetime.
func newToken(value string, life time.Duration) (auth.Token, error) {
	switch {
	case !printable(value):
		return auth.Token{}, errors.New("the answer holds no token")
	case life <= 0:
		return auth.Token{}, errors.New("the answer does not say how long the token lives, or it has ended already")
	}
	life = min(life, longestLife)
	return auth.Token{Value: value, Minted: time.Now(), Expires: time.Now().Add(life), Life: life}, nil
}

// printable reports whether a text can be sent in a header.
func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// signJWT signs a JSON web token. Its error does not repeat the key.
func signJWT(method jwt.SigningMethod, key *rsa.PrivateKey, header map[string]any, claims jwt.MapClaims) (string, error) {
	token := jwt.NewWithClaims(method, claims)
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	if err != nil {
		return "", errors.New("sign with the private key: it is damaged")
	}
	return text, nil
}
