package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

// ExchangePath is the path of the token exchange, as in the README of Grafana's
// controller.
const ExchangePath = "/sign/access-token"

const (
	// tokenLifetime is the lifetime of an access token without expiresIn. Clients
	// drop a token 15 s before its expiry, so it must be well above that.
	tokenLifetime = 10 * time.Minute
	// maxTokenLifetime bounds expiresIn.
	maxTokenLifetime = time.Hour

	maxExchangeBody = 64 << 10
	maxAudiences    = 20

	// A client may exchange 60 tokens at once and 5 per second from then on. A
	// wrong token costs as much as 10 valid ones, which limits guessing to one
	// attempt in two seconds.
	exchangeBurst  = 60
	exchangeRate   = 5
	wrongTokenCost = 10
	maxClients     = 1024
)

// ExchangeOptions are the options of an Exchange.
type ExchangeOptions struct {
	Token  string           // the long-lived token; must not be empty
	Logger *slog.Logger     // nil = slog.Default()
	Now    func() time.Time // nil = time.Now
}

// Exchange serves POST /sign/access-token: it exchanges a long-lived token for a
// short-lived access token. It is safe for concurrent use.
type Exchange struct {
	signer *Signer
	token  [sha256.Size]byte
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex // guards clients
	clients map[string]*rate.Limiter
}

// NewExchange returns an error without a signer or a token: an empty token would
// match every request without one.
func NewExchange(signer *Signer, o ExchangeOptions) (*Exchange, error) {
	switch {
	case signer == nil:
		return nil, errors.New("make token exchange: no signer")
	case o.Token == "":
		return nil, errors.New("make token exchange: no token to exchange; set --token")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Exchange{signer: signer, token: sha256.Sum256([]byte(o.Token)), log: o.Logger,
		now: o.Now, clients: map[string]*rate.Limiter{}}, nil
}

type exchangeRequest struct {
	Namespace    string   `json:"namespace"`
	Audiences    []string `json:"audiences"`
	SubjectToken string   `json:"subjectToken"`
	ExpiresIn    *int64   `json:"expiresIn"` // seconds
}

type exchangeAnswer struct {
	Data   *exchangeData `json:"data,omitempty"`
	Status string        `json:"status"`
	Error  string        `json:"error,omitempty"`
}

type exchangeData struct {
	Token string `json:"token"`
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
	client := e.client(req)
	if !client.AllowN(e.now(), 1) {
		w.Header().Set("Retry-After", "1")
		e.refuse(w, http.StatusTooManyRequests, "too many requests")
		return
	}
	given := sha256.Sum256([]byte(Bearer(req.Header.Get("Authorization"))))
	if subtle.ConstantTimeCompare(given[:], e.token[:]) != 1 {
		client.AllowN(e.now(), wrongTokenCost-1)
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
		"namespace", claims.Namespace, "audiences", strings.Join(claims.Audience, ","), "client", clientOf(req))
	e.answer(w, http.StatusOK, exchangeAnswer{Data: &exchangeData{Token: token}, Status: "success"})
}

// claims returns the claims of the requested token.
func (e *Exchange) claims(req *http.Request) (Claims, error) {
	var body exchangeRequest
	if err := checkSystemHeaders(req.Header); err != nil {
		return Claims{}, err
	}
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
		return Claims{}, errors.New("audiences must name between 1 and " + strconv.Itoa(maxAudiences) + " API groups")
	}
	now := e.now()
	lifetime := tokenLifetime
	if body.ExpiresIn != nil {
		if *body.ExpiresIn <= 0 {
			return Claims{}, errors.New("expiresIn must be a positive number of seconds")
		}
		lifetime = time.Duration(min(*body.ExpiresIn, int64(maxTokenLifetime/time.Second))) * time.Second
	}
	c := Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    tokenIssuer,
			Subject:   "access-policy:limpet",
			Audience:  body.Audiences,
			ID:        rand.Text(),
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
		},
		Namespace: body.Namespace,
	}
	if body.SubjectToken != "" {
		subject, err := e.signer.Verify(body.SubjectToken, now)
		if err != nil {
			return Claims{}, errors.New("subjectToken is not a valid token of this server")
		}
		c.Actor, c.Subject = &Actor{Subject: c.Subject}, subject.Subject
	}
	return c, nil
}

// checkSystemHeaders rejects malformed realm and organisation headers. Without
// these headers a client means the system itself.
func checkSystemHeaders(h http.Header) error {
	if realms := h.Get("X-Realms"); realms != "" {
		var list []struct{ Type, Identifier string }
		if json.Unmarshal([]byte(realms), &list) != nil {
			return errors.New(`X-Realms must be JSON like [{"type":"system","identifier":"system"}]`)
		}
	}
	if org := h.Get("X-Org-ID"); org != "" {
		if _, err := strconv.ParseInt(org, 10, 64); err != nil {
			return errors.New("X-Org-ID must be a number")
		}
	}
	return nil
}

// client returns the rate limiter of the sender.
func (e *Exchange) client(req *http.Request) *rate.Limiter {
	name := clientOf(req)
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.clients[name]; l != nil {
		return l
	}
	if len(e.clients) >= maxClients {
		e.forget()
	}
	l := rate.NewLimiter(exchangeRate, exchangeBurst)
	e.clients[name] = l
	return l
}

// forget removes the clients that are back at their full budget, or all of them
// if there is none: the table of clients must stay bounded.
func (e *Exchange) forget() {
	now := e.now()
	for name, l := range e.clients {
		if l.TokensAt(now) >= exchangeBurst {
			delete(e.clients, name)
		}
	}
	if len(e.clients) >= maxClients {
		clear(e.clients)
	}
}

func clientOf(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
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
