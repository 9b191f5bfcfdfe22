package forge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Times of a JSON web token for GitHub, which accepts at most 10 minutes from now
// and none from the future: a clock may be a minute fast.
const (
	jwtBefore = time.Minute
	jwtLife   = 9 * time.Minute // from its beginning: it ends 8 minutes from now
)

// maxTokenLife bounds the lifetime that a host may state for a token.
const maxTokenLife = 24 * time.Hour

// app is the identity of a GitHub App at its API.
type app struct {
	h       *Hosts
	of      string // for people: whose it is
	base    string
	id      string
	install string // "" = not known yet
	key     *rsa.PrivateKey
	secret  *auth.Credentials
}

// privateKey parses the key of a GitHub App: PEM with PKCS#1, which GitHub creates, or PKCS#8,
// which other tools convert it to, as it is or in base64. Errors do not repeat the key.
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
	case err != nil:
		return nil, errors.New("it is no unencrypted RSA key in PKCS#1 or PKCS#8, which GitHub requires")
	case key.N.BitLen() < 2048 || key.N.BitLen() > auth.MaxRSA:
		return nil, fmt.Errorf("it is an RSA key of less than 2048 or more than %d bits", auth.MaxRSA)
	}
	return key, nil
}

// identity names the App for people.
func (a *app) identity() string {
	if a.install == "" {
		return fmt.Sprintf("GitHub App %s of %s", a.id, a.of)
	}
	return fmt.Sprintf("GitHub App %s, installation %s, of %s", a.id, a.install, a.of)
}

// asApp sends a request with a proof that its sender is the App, by the clock of the host, and
// decodes the answer. Source: docs.github.com, "Generating a JSON Web Token for a GitHub App".
func asApp[T any](ctx context.Context, a *app, r request) (out T, c *caller, err error) {
	var got netx.Answer
	err = a.h.client.InTime(a.base, func(now time.Time) (err error) {
		begin := now.Add(-jwtBefore)
		creds := *a.secret
		creds.Bearer, err = jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
			Issuer:    a.id,
			IssuedAt:  jwt.NewNumericDate(begin),
			ExpiresAt: jwt.NewNumericDate(begin.Add(jwtLife)),
		}).SignedString(a.key)
		if err != nil {
			return invalid(r.op, "sign a token with the private key: it is damaged")
		}
		c = a.h.caller(a.base, "Bearer ", &creds)
		c.identity = a.identity()
		c.gate = strings.Join([]string{a.base, a.id, a.install}, " ") // each proof is new, the identity is not
		maps.Copy(c.header, githubHeader)
		got, err = c.do(ctx, r)
		return err
	})
	if err == nil {
		out, err = into[T](c, r, got)
	}
	return out, c, err
}

// installation is an installation as GitHub describes it.
type installation struct {
	ID          json.Number       `json:"id"`
	Suspended   string            `json:"suspended_at"`
	Permissions map[string]string `json:"permissions"`
}

func (a *app) installation(ctx context.Context) (installation, error) {
	r := request{op: "read installation " + a.install, method: http.MethodGet, path: "/app/installations/" + url.PathEscape(a.install)}
	i, c, err := asApp[installation](ctx, a, r)
	if err == nil && i.Suspended != "" {
		err = c.fail(r, netx.Forbidden, errors.New("the installation is suspended"))
	}
	return i, err
}

// requiredPermissions returns the permissions of an installation that Grafana
// requires. GitHub calls webhooks repository_hooks.
func requiredPermissions(hooks bool) map[string]string {
	p := map[string]string{"contents": "write", "metadata": "read", "pull_requests": "write"}
	if hooks {
		p["repository_hooks"] = "write"
	}
	return p
}

// levels orders the values of a permission.
var levels = map[string]int{"read": 1, "write": 2, "admin": 3}

// mint mints a token for one repository, by its name. It has the required permissions and those
// that show branch protection and set commit statuses, as far as the installation has them: GitHub
// refuses to give more.
func (a *app) mint(ctx context.Context, repository string, hooks bool) (auth.Token, error) {
	i, err := a.installation(ctx)
	if err != nil {
		return auth.Token{}, err
	}
	grants := requiredPermissions(hooks)
	grants["administration"], grants["statuses"] = "read", "write"
	maps.DeleteFunc(grants, func(name, _ string) bool { return levels[i.Permissions[name]] == 0 })
	for name, want := range grants {
		if have := i.Permissions[name]; levels[have] < levels[want] {
			grants[name] = have
		}
	}
	if grants["contents"] == "" {
		return auth.Token{}, &netx.Error{Kind: netx.Forbidden, Op: "mint a token", Identity: a.identity(), Endpoint: a.base,
			Err: errors.New("the installation may not read contents")}
	}
	token, err := a.token(ctx, "mint a token for "+repository,
		map[string]any{"repositories": []string{repository}, "permissions": grants})
	return token, changed(err, netx.Refused, func(e *netx.Error) {
		if strings.Contains(e.Err.Error(), "at least one repository") {
			e.Kind, e.Err = netx.NotFound, fmt.Errorf("repository %s is not there, or the installation does not include it", repository)
		}
	})
}

func (a *app) token(ctx context.Context, op string, limits any) (auth.Token, error) {
	r := request{op: op, method: http.MethodPost, path: "/app/installations/" + url.PathEscape(a.install) + "/access_tokens", body: limits}
	made, c, err := asApp[struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}](ctx, a, r)
	if err != nil {
		return auth.Token{}, err
	}
	// By the clock of the host: the local one may be wrong.
	life := made.Expires.Sub(a.h.client.Clock(a.base))
	switch {
	case !auth.Printable(made.Token):
		return auth.Token{}, c.fail(r, netx.Protocol, errors.New("the answer holds no token"))
	case life <= 0:
		return auth.Token{}, c.fail(r, netx.Protocol, errors.New("the token that it issues has expired"))
	}
	return auth.Token{Value: made.Token, Minted: time.Now(), Expires: made.Expires, Life: min(life, maxTokenLife)}, nil
}

// InstallationToken mints a token for all repositories of an installation. It looks
// up the installation of an owner first when only that is known.
func (h *Hosts) InstallationToken(ctx context.Context, i auth.AppIdentity) (auth.Token, error) {
	of := i.Secret.Source
	for name, value := range map[string]string{"githubAppID": i.AppID, "githubAppInstallationID": cmp.Or(i.Installation, "0")} {
		if !isNumber(value) {
			return auth.Token{}, invalid("use "+of, "%s is not a number", name)
		}
	}
	key, err := privateKey(i.Secret.PrivateKey)
	if err != nil {
		return auth.Token{}, invalid("use "+of, "githubAppPrivateKey cannot be used: %w", err)
	}
	base := strings.TrimSuffix(cmp.Or(i.API, githubCloud), "/")
	a := &app{h: h, of: of, base: base, id: i.AppID, install: i.Installation, key: key, secret: i.Secret}
	if a.install == "" {
		if a.install, err = a.installationOf(ctx, i.Owner); err != nil {
			return auth.Token{}, err
		}
	}
	return a.token(ctx, "make a token of installation "+a.install, nil)
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// installationOf returns the installation of an organization, or else of a user.
// GitHub answers 404 for the wrong kind of owner.
func (a *app) installationOf(ctx context.Context, owner string) (string, error) {
	var first error
	for _, kind := range []string{"orgs", "users"} {
		r := request{op: "find the installation of " + owner, method: http.MethodGet,
			path: "/" + kind + "/" + url.PathEscape(owner) + "/installation"}
		found, c, err := asApp[installation](ctx, a, r)
		if err == nil && !isNumber(found.ID.String()) {
			err = c.fail(r, netx.Protocol, errors.New("the answer names no installation"))
		}
		if k := netx.KindOf(err); k != netx.NotFound && k != netx.Forbidden {
			return found.ID.String(), err
		}
		first = cmp.Or(first, err)
	}
	return "", first
}

// test checks the App and the permissions of its installation. block is its part of the spec, such
// as spec.github.
func (a *app) test(ctx context.Context, block string, hooks bool) error {
	field := func(kind, name, detail string) netx.Field { return netx.Field{Type: kind, Field: name, Detail: detail} }
	id, install := block+".appID", block+".installationID"
	r := request{op: "test " + a.of, method: http.MethodGet, path: "/app"}
	self, c, err := asApp[struct {
		ID int64 `json:"id"`
	}](ctx, a, r)
	if err != nil {
		return withFields(err, map[netx.ErrorKind][]netx.Field{
			netx.Unauthorized: {field("FieldValueInvalid", id, "verify that the App has this id"),
				field("FieldValueInvalid", "secure.privateKey", "verify that it is a key of this App")},
			netx.NotFound: {field("FieldValueNotFound", id, "there is no App with this id")},
		})
	}
	if fmt.Sprint(self.ID) != a.id {
		e := c.fail(r, netx.Invalid, fmt.Errorf("the private key is that of App %d", self.ID))
		e.Fields = []netx.Field{field("FieldValueInvalid", id, e.Err.Error())}
		return e
	}
	i, err := a.installation(ctx)
	if err != nil {
		return withFields(err, map[netx.ErrorKind][]netx.Field{
			netx.NotFound:     {field("FieldValueInvalid", install, "the App has no installation with this id")},
			netx.Unauthorized: {field("FieldValueInvalid", install, "GitHub does not let the App see it")},
			netx.Forbidden:    {field("FieldValueForbidden", install, "the installation is suspended")},
		})
	}
	e := c.fail(r, netx.Forbidden, nil)
	need := requiredPermissions(hooks)
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if have := i.Permissions[name]; levels[have] < levels[need[name]] {
			e.Fields = append(e.Fields, field("FieldValueForbidden", id,
				fmt.Sprintf("the App needs permission %s: %s, it has %s", name, need[name], cmp.Or(have, "none"))))
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
func withFields(err error, fields map[netx.ErrorKind][]netx.Field) error {
	kind := netx.KindOf(err)
	if len(fields[kind]) == 0 {
		return err
	}
	return changed(err, kind, func(e *netx.Error) { e.Fields = fields[kind] })
}

// changed returns an error of a kind with a change, any other as it is.
func changed(err error, kind netx.ErrorKind, change func(*netx.Error)) error {
	e, ok := errors.AsType[*netx.Error](err)
	if !ok || e.Kind != kind {
		return err
	}
	copied := *e
	change(&copied)
	return &copied
}
