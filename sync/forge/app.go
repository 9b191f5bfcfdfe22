package forge

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// minSkew is the least clock difference that makes a rejected proof be signed again
// by the clock of the host.
const minSkew = 30 * time.Second

// maxTokenLife bounds the lifetime that a host may state for a token.
const maxTokenLife = 24 * time.Hour

// requiredPermissions returns the permissions of an installation that Grafana
// requires. GitHub calls webhooks repository_hooks.
func requiredPermissions(hooks bool) map[string]string {
	p := map[string]string{"contents": "write", "metadata": "read", "pull_requests": "write"}
	if hooks {
		p["repository_hooks"] = "write"
	}
	return p
}

// requestedPermissions returns the permissions of a token: the required ones, and the
// one that shows branch protection.
func requestedPermissions(hooks bool) map[string]string {
	p := requiredPermissions(hooks)
	p["administration"] = "read"
	return p
}

// levels orders the values of a permission.
var levels = map[string]int{"read": 1, "write": 2, "admin": 3}

// app is the identity of a GitHub App at its API.
type app struct {
	h         *Hosts
	c         Connection
	base      string
	id        string
	install   string
	key       *rsa.PrivateKey
	secret    *auth.ConnectionSecret
	hooks     bool
	grantsKey string // in Hosts.grants
}

// app returns the identity of a Connection.
func (h *Hosts) app(c Connection, spec *api.GitHubApp, base string, secret *auth.ConnectionSecret) (*app, error) {
	if err := c.check(spec); err != nil {
		return nil, err
	}
	if len(secret.PrivateKey) == 0 {
		return nil, c.noSecret()
	}
	key, err := privateKey(secret.PrivateKey)
	if err != nil {
		e := invalid("use "+c.String(), "the private key from %s cannot be used: %w", secret.Source, err)
		e.Fields = []Field{{Type: "FieldValueInvalid", Field: "secure.privateKey", Detail: err.Error()}}
		return nil, e
	}
	a := &app{h: h, c: c, base: base, id: spec.AppID, install: spec.InstallationID, key: key, secret: secret,
		hooks: c.Spec.Webhook == nil || !c.Spec.Webhook.Disabled}
	a.grantsKey = strings.Join([]string{base, a.id, a.install}, " ")
	return a, nil
}

func (a *app) identity() string {
	of := a.c.String()
	if a.c.Namespace == "" {
		of = a.c.Name // the place of a secret
	}
	if a.install == "" {
		return fmt.Sprintf("GitHub App %s of %s", a.id, of)
	}
	return fmt.Sprintf("GitHub App %s, installation %s, of %s", a.id, a.install, of)
}

// call sends a request with a fresh proof. A host that rejects it because the local
// clock is wrong returns its time: then call tries once more.
func (a *app) call(ctx context.Context, r request) (*caller, answer, error) {
	skew := a.h.skew(a.base)
	c, got, err := a.once(ctx, r, skew)
	if now := a.h.skew(a.base); KindOf(err) == Unauthorized && (now-skew).Abs() > minSkew {
		return a.once(ctx, r, now)
	}
	return c, got, err
}

func (a *app) once(ctx context.Context, r request, skew time.Duration) (*caller, answer, error) {
	proof, err := appJWT(a.key, a.id, time.Now().Add(skew))
	if err != nil {
		return nil, answer{}, invalid(r.op, "%w", err)
	}
	creds := a.c.credentials(a.secret, proof)
	c, err := a.h.caller(a.base, creds)
	if err != nil {
		return nil, answer{}, err
	}
	c.sign, c.header, c.identity = bearer(creds), githubHeader, a.identity()
	c.gate = a.grantsKey // each proof is new, the identity is not
	got, err := c.do(ctx, r)
	return c, got, err
}

// installation is an installation as GitHub describes it.
type installation struct {
	AppID     int64  `json:"app_id"`
	Suspended string `json:"suspended_at"`
	Account   struct {
		Login string `json:"login"`
	} `json:"account"`
	Permissions map[string]string `json:"permissions"`
}

func (a *app) installation(ctx context.Context) (installation, error) {
	r := request{op: "read installation " + a.install, method: http.MethodGet, path: "/app/installations/" + url.PathEscape(a.install)}
	c, got, err := a.call(ctx, r)
	if err != nil {
		return installation{}, err
	}
	i, err := into[installation](c, r, got)
	if err == nil && i.Suspended != "" {
		err = c.fail(r, Forbidden, 0, errors.New("the installation is suspended"))
	}
	return i, err
}

// grants returns the permissions that a token of this installation can have, out of
// the requested ones.
func (a *app) grants(ctx context.Context) (map[string]string, error) {
	a.h.mu.Lock()
	known, ok := a.h.grants.get(a.grantsKey)
	a.h.mu.Unlock()
	if ok {
		return known, nil
	}
	i, err := a.installation(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, want := range requestedPermissions(a.hooks) {
		switch have := i.Permissions[name]; {
		case levels[have] >= levels[want]:
			out[name] = want
		case levels[have] > 0:
			out[name] = have
		}
	}
	if out["contents"] == "" {
		return nil, &Error{Kind: Forbidden, Op: "mint a token", Identity: a.identity(), Endpoint: a.base,
			Err: errors.New("the installation may not read contents")}
	}
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	a.h.grants.put(a.grantsKey, out)
	return out, nil
}

// forgetGrants drops the known permissions, because GitHub granted fewer.
func (a *app) forgetGrants() {
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	a.h.grants.drop(a.grantsKey)
}

// mint mints a token for one repository, by its name.
func (a *app) mint(ctx context.Context, repository string) (auth.Token, error) {
	token, err := a.mintOnce(ctx, repository)
	if KindOf(err) == Refused && strings.Contains(err.Error(), "permissions requested") {
		a.forgetGrants() // permissions were removed
		token, err = a.mintOnce(ctx, repository)
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == Refused && strings.Contains(e.Err.Error(), "at least one repository") {
		hidden := *e
		hidden.Kind, hidden.Err = NotFound, fmt.Errorf("repository %s is not there, or the installation does not include it", repository)
		return token, &hidden
	}
	return token, err
}

func (a *app) mintOnce(ctx context.Context, repository string) (auth.Token, error) {
	grants, err := a.grants(ctx)
	if err != nil {
		return auth.Token{}, err
	}
	r := request{op: "mint a token for " + repository, method: http.MethodPost,
		path: "/app/installations/" + url.PathEscape(a.install) + "/access_tokens",
		body: map[string]any{"repositories": []string{repository}, "permissions": maps.Clone(grants)}}
	return a.make(ctx, r)
}

// test checks the App and the permissions of its installation.
func (a *app) test(ctx context.Context) error {
	block := "spec." + a.c.Spec.Type
	r := request{op: "test " + a.c.String(), method: http.MethodGet, path: "/app"}
	c, got, err := a.call(ctx, r)
	if err != nil {
		return withFields(err, map[ErrorKind][]Field{
			Unauthorized: {{Type: "FieldValueInvalid", Field: block + ".appID", Detail: "verify that the App has this id"},
				{Type: "FieldValueInvalid", Field: "secure.privateKey", Detail: "verify that it is a key of this App"}},
			NotFound: {{Type: "FieldValueNotFound", Field: block + ".appID", Detail: "there is no App with this id"}},
		})
	}
	self, err := into[struct {
		ID int64 `json:"id"`
	}](c, r, got)
	if err != nil {
		return err
	}
	if fmt.Sprint(self.ID) != a.id {
		e := c.fail(r, Invalid, 0, fmt.Errorf("the private key is that of App %d", self.ID))
		e.Fields = []Field{{Type: "FieldValueInvalid", Field: block + ".appID", Detail: e.Err.Error()}}
		return e
	}
	i, err := a.installation(ctx)
	if err != nil {
		return withFields(err, map[ErrorKind][]Field{
			NotFound:     {{Type: "FieldValueInvalid", Field: block + ".installationID", Detail: "the App has no installation with this id"}},
			Unauthorized: {{Type: "FieldValueInvalid", Field: block + ".installationID", Detail: "GitHub does not let the App see it"}},
			Forbidden:    {{Type: "FieldValueForbidden", Field: block + ".installationID", Detail: "the installation is suspended"}},
		})
	}
	a.forgetGrants() // the next token is made with what was seen now
	e := c.fail(r, Forbidden, 0, nil)
	need := requiredPermissions(a.hooks)
	for _, name := range sortedKeys(need) {
		if have := i.Permissions[name]; levels[have] < levels[need[name]] {
			e.Fields = append(e.Fields, Field{Type: "FieldValueForbidden", Field: block + ".appID",
				Detail: fmt.Sprintf("the App needs permission %s: %s, it has %s", name, need[name], cmp.Or(have, "none"))})
		}
	}
	if len(e.Fields) == 0 {
		return nil
	}
	e.Err = errors.New(e.Fields[0].Detail)
	if n := len(e.Fields) - 1; n > 0 {
		e.Err = fmt.Errorf("%w, and %d more", e.Err, n)
	}
	return e
}

// withFields adds the fields of the object that an error is about.
func withFields(err error, fields map[ErrorKind][]Field) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || len(fields[e.Kind]) == 0 {
		return err
	}
	named := *e
	named.Fields = fields[e.Kind]
	return &named
}
