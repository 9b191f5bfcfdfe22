package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// gitlab gives the tokens of GitLab the user names that they need: deploy tokens
// have one of their own, personal, group, project and OAuth tokens use oauth2.
// For an OAuth application it exchanges refresh tokens. GitLab accepts no token of
// another party for Git, so there is no federation.
type gitlab struct {
	*registry

	unsaved sync.Map // refresh tokens that could not be stored yet, by vaultName
}

// Credentials implements Provider.
func (p *gitlab) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	user := cmp.Or(r.Text("username"), r.TokenUser, "oauth2")
	if token := cmp.Or(r.Text("token"), r.Text("password"), r.Text("bearerToken")); token != "" {
		if !auth.Printable(token) {
			return nil, invalid("use provider gitlab", "the token in %s holds a space or a control character", r.Place)
		}
		return &auth.Credentials{Username: user, Password: token}, nil
	}
	app := application{r.Text("gitlabAppID"), r.Text("gitlabAppSecret"), r.Text("gitlabAppRedirectUrl"), r.Text("gitlabAppRefreshToken")}
	switch {
	case app.id == "" || app.refresh == "":
		return nil, invalid("use provider gitlab",
			"%s has neither token, nor username and password, nor gitlabAppID and gitlabAppRefreshToken", r.Place)
	case p.o.Vault == nil:
		return nil, invalid("use provider gitlab", "a refresh token is good once, and there is no place to store the next one")
	}
	name := app.vaultName(r.Address.HostPort())
	p.save(ctx, name)
	// One key for all places with the same refresh token: it is good once.
	key := auth.TokenKey{Owner: "GitLab application " + app.id, Secret: name, Scope: r.Address.HostPort()}
	token, err := p.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.refresh(ctx, r, app) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: "oauth2", Password: token.Value, Forget: p.forget(key, token)}, nil
}

// application is an OAuth application of GitLab, and the refresh token of a person's
// authorization.
type application struct{ id, secret, redirect, refresh string }

// gitlabLife is how long an access token lives where the answer does not say.
// Source: GitLab 15.0.
const gitlabLife = 2 * time.Hour

// vaultName names the refresh tokens that replace the given one. Another given one has
// another name.
func (a application) vaultName(host string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + a.id + "\x00" + a.refresh))
	return "gitlab-refresh/" + hex.EncodeToString(sum[:16])
}

// refresh exchanges the newest refresh token for an access token and the next
// refresh token, which is stored before the access token is used: GitLab has revoked the
// old one. A power cut between its answer and the write to the disk ends the
// authorization, and a person has to give another token. Source: GitLab, "OAuth 2.0
// identity provider API".
func (p *gitlab) refresh(ctx context.Context, r Request, app application) (auth.Token, error) {
	name := app.vaultName(r.Address.HostPort())
	newest, err := p.newest(ctx, name)
	if err != nil {
		return auth.Token{}, invalid("use provider gitlab", "read the stored refresh token: %w", err)
	}
	newest = cmp.Or(newest, app.refresh)
	form := url.Values{"grant_type": {"refresh_token"}, "client_id": {app.id}, "refresh_token": {newest}}
	if app.secret != "" {
		form.Set("client_secret", app.secret)
	}
	if app.redirect != "" {
		form.Set("redirect_uri", app.redirect)
	}
	c := netx.Call{
		Op:       "exchange a refresh token",
		Identity: "GitLab application " + app.id + " of " + r.Place,
		Method:   http.MethodPost,
		URL:      r.Address.Scheme + "://" + r.Address.HostPort() + "/oauth/token",
		Body:     []byte(form.Encode()),
		Trust:    r.TLS,
		Secrets:  []string{app.secret, app.refresh, newest},
	}
	// The caller may be cancelled; the answer must not be lost.
	got, err := p.do(context.WithoutCancel(ctx), c)
	if err != nil {
		return auth.Token{}, err
	}
	answered, token, err := parseGrant(got.Body, gitlabLife)
	if answered.Refresh != "" {
		p.unsaved.Store(name, answered.Refresh)
		p.save(context.WithoutCancel(ctx), name)
	}
	if err != nil {
		return auth.Token{}, malformed(c, err.Error())
	}
	return token, nil
}

// newest returns the refresh token that has replaced the given one, "" when none has.
// One that could not be stored yet comes before the stored one.
func (p *gitlab) newest(ctx context.Context, name string) (string, error) {
	if unsaved, ok := p.unsaved.Load(name); ok {
		return unsaved.(string), nil
	}
	saved, err := p.o.Vault.Secret(ctx, name)
	return string(saved), err
}

// save stores a refresh token. When it cannot, because the disk is full, the token
// stays in memory and each look-up tries again.
func (p *gitlab) save(ctx context.Context, name string) {
	if unsaved, ok := p.unsaved.Load(name); ok && p.o.Vault.PutSecret(ctx, name, []byte(unsaved.(string))) == nil {
		p.unsaved.CompareAndDelete(name, unsaved)
	}
}
