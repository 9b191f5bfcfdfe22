package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
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

// Errors of Verify beside those of package jwt.
var (
	errTooLong  = errors.New("token is too long")
	errOtherKey = errors.New("token was signed by another key")
	errCritical = errors.New("token has critical extensions")
	errFuture   = errors.New("token was issued in the future")
)
