package forgetest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// App is a GitHub App with its installations.
type App struct {
	ID            string
	Key           []byte // PEM, PKCS#1, as GitHub hands it out
	Installations map[string]*Installation

	public *rsa.PublicKey
}

// Installation is where an App may work.
type Installation struct {
	Account      string
	User         bool     // the account is a person, not an organization
	Repositories []string // names, without the account
	Permissions  map[string]string
	Suspended    bool
}

// AllPermissions are those that Grafana asks for, and the one to read the
// protection of branches.
func AllPermissions() map[string]string {
	return map[string]string{"contents": "write", "metadata": "read", "pull_requests": "write", "repository_hooks": "write",
		"administration": "read"}
}

// grant is what a minted token is good for.
type grant struct {
	account      string
	repositories []string
	permissions  map[string]string
	until        time.Time
}

func (g grant) covers(path string) bool {
	owner, name, _ := strings.Cut(path, "/")
	return owner == g.account && slices.Contains(g.repositories, name)
}

// keyOnce makes one key for all tests of a process: it takes up to a second.
var keyOnce = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// App registers a GitHub App.
func (h *Host) App(t testing.TB, id string, installations map[string]*Installation) *App {
	t.Helper()
	key, err := keyOnce()
	if err != nil {
		t.Fatal(err)
	}
	a := &App{ID: id, Installations: installations, public: &key.PublicKey,
		Key: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.apps[id] = a
	return a
}

// Change changes an App or its installations while the host runs.
func (h *Host) Change(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// Accepts reports whether Git would let a minted token in, as user x-access-token,
// to read a repository.
func (h *Host) Accepts(user, token, path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.minted[token]
	return ok && user == "x-access-token" && h.now().Before(g.until) && g.covers(path) && g.permissions["contents"] != ""
}

// Minted are the tokens that were made and are not revoked.
func (h *Host) Minted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return keys(h.minted)
}

// proof checks the JSON web token of an App, as GitHub does.
func (c *call) proof() (*App, string) {
	parts := strings.Split(c.token, ".")
	if len(parts) != 3 {
		return nil, "A JSON web token could not be decoded"
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return nil, "A JSON web token could not be decoded"
		}
	}
	var header struct{ Alg, Typ string }
	var claims struct {
		Iat, Exp *int64
		Iss      string
	}
	if json.Unmarshal(decoded[0], &header) != nil || json.Unmarshal(decoded[1], &claims) != nil || header.Alg != "RS256" ||
		claims.Iat == nil || claims.Exp == nil {
		return nil, "A JSON web token could not be decoded"
	}
	app := c.h.apps[claims.Iss]
	if app == nil {
		return nil, "Integration must generate a public key"
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(app.public, crypto.SHA256, sum[:], decoded[2]) != nil {
		return nil, "A JSON web token could not be decoded"
	}
	now := c.h.now().Unix()
	switch {
	case *claims.Iat > now:
		return nil, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
	case *claims.Exp > now+600:
		return nil, "'Expiration time' claim ('exp') is too far in the future"
	case *claims.Exp <= now:
		return nil, "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires"
	}
	return app, ""
}

func serveApp(c *call) {
	app, wrong := c.proof()
	if app == nil {
		c.github(http.StatusUnauthorized, wrong)
		return
	}
	var id int64
	fmt.Sscan(app.ID, &id)
	if len(c.parts) == 1 {
		c.answer(http.StatusOK, map[string]any{"id": id, "slug": "limpet-test", "name": "limpet test", "owner": map[string]any{"login": "team"},
			"permissions": AllPermissions(), "events": []string{}})
		return
	}
	if c.parts[0] != "app" {
		serveOwner(c, app)
		return
	}
	in := app.Installations[c.parts[2]]
	switch {
	case in == nil:
		c.github(http.StatusNotFound, "Not Found")
	case len(c.parts) == 3:
		suspended := any(nil)
		if in.Suspended {
			suspended = "2026-11-20T12:00:00Z"
		}
		c.answer(http.StatusOK, map[string]any{"id": c.parts[2], "app_id": id, "account": map[string]any{"login": in.Account},
			"permissions":  in.Permissions,
			"suspended_at": suspended, "repository_selection": "selected"})
	case in.Suspended:
		c.github(http.StatusForbidden, "This installation has been suspended")
	case c.method == http.MethodPost && c.parts[3] == "access_tokens":
		mint(c, in)
	}
}

// serveOwner finds the installation of an account.
func serveOwner(c *call, app *App) {
	for id, in := range app.Installations {
		if strings.EqualFold(in.Account, c.parts[1]) && in.User == (c.parts[0] == "users") {
			var number int64
			fmt.Sscan(id, &number)
			c.answer(http.StatusOK, map[string]any{"id": number, "account": map[string]any{"login": in.Account}})
			return
		}
	}
	c.github(http.StatusNotFound, "Not Found")
}

func mint(c *call, in *Installation) {
	all := c.r.ContentLength == 0 // no body: everything that the installation has
	var form struct {
		Repositories []string          `json:"repositories"`
		Permissions  map[string]string `json:"permissions"`
	}
	if form.Repositories, form.Permissions = in.Repositories, in.Permissions; !all {
		form.Repositories, form.Permissions = nil, nil
		if err := json.NewDecoder(c.r.Body).Decode(&form); err != nil {
			panic(http.ErrAbortHandler) // limpet sends JSON or has a fault
		}
	}
	for _, name := range form.Repositories {
		if !slices.Contains(in.Repositories, name) {
			c.github(http.StatusUnprocessableEntity,
				"There is at least one repository that does not exist or is not accessible to the parent installation.")
			return
		}
	}
	rank := map[string]int{"read": 1, "write": 2}
	for name, level := range form.Permissions {
		if rank[in.Permissions[name]] < rank[level] {
			c.github(http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
			return
		}
	}
	life := c.h.o.TokenLife
	if life == 0 {
		life = time.Hour
	}
	raw := make([]byte, 18)
	rand.Read(raw)
	token := "ghs_" + hex.EncodeToString(raw)
	until := c.h.now().Add(life).Truncate(time.Second)
	c.h.minted[token] = grant{in.Account, form.Repositories, form.Permissions, until}
	repositories := []any{}
	for _, name := range form.Repositories {
		repositories = append(repositories, map[string]any{"name": name, "full_name": in.Account + "/" + name})
	}
	c.answer(http.StatusCreated, map[string]any{"token": token, "expires_at": until.UTC().Format(time.RFC3339),
		"permissions":          form.Permissions,
		"repository_selection": "selected", "repositories": repositories})
}
