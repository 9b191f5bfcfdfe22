package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// signer is the token exchange that Grafana's controllers ask before they call
// an API: a long-lived token in, a short-lived JWT for named audiences out.
// Its key lives in memory, so a restart makes all its tokens invalid.
type signer struct {
	token  string
	ttl    time.Duration // of a token whose exchange names none
	public ed25519.PublicKey
	key    ed25519.PrivateKey
}

// exchange is the body of a request. ExpiresIn is in seconds.
type exchange struct {
	Namespace string   `json:"namespace"`
	Audiences []string `json:"audiences"`
	Subject   string   `json:"subjectToken"`
	ExpiresIn int64    `json:"expiresIn"`
}

type claims struct {
	jwt.RegisteredClaims
	Namespace string `json:"namespace"`
}

func newSigner(token string, ttl time.Duration) (*signer, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	return &signer{token: token, ttl: ttl, public: public, key: key}, err
}

// ServeHTTP answers POST /sign/access-token. It refuses a request that lacks
// what Grafana's own client always sends.
func (s *signer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/sign/access-token" {
		refuse(w, http.StatusNotFound, "no such path")
		return
	}
	if r.Method != http.MethodPost {
		refuse(w, http.StatusMethodNotAllowed, "only POST")
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+s.token {
		refuse(w, http.StatusUnauthorized, "invalid token")
		return
	}
	var realms []struct{ Type, Identifier string }
	if err := json.Unmarshal([]byte(r.Header.Get("X-Realms")), &realms); err != nil || len(realms) == 0 {
		refuse(w, http.StatusBadRequest, "X-Realms is missing or not a list")
		return
	}
	if r.Header.Get("X-Org-ID") == "" {
		refuse(w, http.StatusBadRequest, "X-Org-ID is missing")
		return
	}
	var body exchange
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "body is not an exchange request")
		return
	}
	if body.Namespace == "" || len(body.Audiences) == 0 {
		refuse(w, http.StatusBadRequest, "namespace and audiences are required")
		return
	}
	token, err := s.issue(body)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]any{"status": "success", "data": map[string]string{"token": token}})
}

func (s *signer) issue(e exchange) (string, error) {
	ttl := s.ttl
	if e.ExpiresIn > 0 {
		ttl = time.Duration(e.ExpiresIn) * time.Second
	}
	now := time.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: "limpet-testbed", Subject: "access-policy:limpet", Audience: e.Audiences,
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
		},
		Namespace: e.Namespace,
	})
	token.Header["typ"] = "at+jwt"
	return token.SignedString(s.key)
}

// verify reads a token of this signer that has not expired.
func (s *signer) verify(token string) (claims, error) {
	var c claims
	if s == nil {
		return c, errors.New("no exchanged tokens here")
	}
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return s.public, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithExpirationRequired())
	return c, err
}

func refuse(w http.ResponseWriter, code int, text string) {
	answer(w, code, map[string]string{"status": "error", "error": text})
}

// answer sends v as JSON. An error means that the caller has gone.
func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
