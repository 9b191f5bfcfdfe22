package identity

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"limpet/sync/auth"
)

// granted is the answer of a token endpoint. Source: RFC 6749 §5.1; Azure's
// metadata server writes numbers as text and adds expires_on.
type granted struct {
	Token   string  `json:"access_token"`
	Life    seconds `json:"expires_in"`
	Until   seconds `json:"expires_on"` // of the epoch
	Refresh string  `json:"refresh_token"`
	Client  string  `json:"client_id"` // Azure's metadata
}

// seconds is a number, or the text of one.
type seconds int64

// UnmarshalJSON reads both forms; null is 0.
func (s *seconds) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "null" || text == "" {
		*s = 0
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < -1e15 || n > 1e15 || n != n {
		return errors.New("a number of seconds is none")
	}
	*s = seconds(n)
	return nil
}

// grant reads the answer of a token endpoint, received at some time by the clock
// of the other side. Its errors do not repeat the answer.
func grant(body []byte, at time.Time) (granted, auth.Token, error) {
	var g granted
	if json.Unmarshal(body, &g) != nil {
		return granted{}, auth.Token{}, errors.New("the answer is not that of a token endpoint")
	}
	life := time.Duration(min(int64(g.Life), int64(longestLife/time.Second))) * time.Second
	if g.Life <= 0 && g.Until > 0 {
		life = time.Unix(int64(g.Until), 0).Sub(at)
	}
	token, err := living(g.Token, life)
	return g, token, err
}

// living is a token that is to be used for some time.
func living(value string, life time.Duration) (auth.Token, error) {
	switch {
	case !printable(value):
		return auth.Token{}, errors.New("the answer holds no token")
	case life <= 0:
		return auth.Token{}, errors.New("the answer does not say how long the token lives, or it has ended already")
	}
	life = min(life, longestLife)
	return auth.Token{Value: value, Minted: time.Now(), Expires: time.Now().Add(life), Life: life}, nil
}

// printable says that a text can be sent in a header.
func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
