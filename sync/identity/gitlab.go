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

// gitlab gives the tokens of GitLab the user names that they want: deploy tokens
// have one of their own, personal, group, project and OAuth tokens take oauth2.
// For an OAuth application it exchanges refresh tokens. GitLab takes no token of
// another party for Git, so there is no exchange of such.
type gitlab struct {
	*desk

	mu      sync.Mutex // guards unsaved; never held over a call
	unsaved map[string]string
}

// Credentials implements Provider.
func (p *gitlab) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	user := cmp.Or(r.Text("username"), r.TokenUser, "oauth2")
	if token := cmp.Or(r.Text("token"), r.Text("password"), r.Text("bearerToken")); token != "" {
		if !printable(token) {
			return nil, invalid("use provider gitlab", "the token in %s holds a blank or a control character", r.Place)
		}
		return &auth.Credentials{Username: user, Password: token}, nil
	}
	app := application{r.Text("gitlabAppID"), r.Text("gitlabAppSecret"), r.Text("gitlabAppRedirectUrl"), r.Text("gitlabAppRefreshToken")}
	switch {
	case app.id == "" || app.refresh == "":
		return nil, invalid("use provider gitlab", "%s has neither token, nor username and password, nor gitlabAppID and gitlabAppRefreshToken", r.Place)
	case p.o.Vault == nil:
		return nil, invalid("use provider gitlab", "a refresh token is good once, and there is no place to keep the next one")
	}
	name := app.vaultName(r.Address.HostPort())
	p.save(ctx, name)
	// One for all places that give the same refresh token: it is good once.
	key := auth.TokenKey{Owner: "GitLab application " + app.id, Secret: name, Scope: r.Address.HostPort()}
	token, err := p.token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.refresh(ctx, r, app) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: "oauth2", Password: token.Value, Forget: p.refused(key, token)}, nil
}

// application is an OAuth application of GitLab, and the refresh token that a
// person has got for it.
type application struct{ id, secret, redirect, refresh string }

// gitlabLife is how long an access token lives where the answer does not say.
// Source: GitLab 15.0.
const gitlabLife = 2 * time.Hour

// vaultName is where the refresh tokens that replace the given one are kept. When
// a person gives another one, that begins anew.
func (a application) vaultName(host string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + a.id + "\x00" + a.refresh))
	return "gitlab-refresh/" + hex.EncodeToString(sum[:16])
}

// refresh exchanges the newest refresh token for an access token and the next
// refresh token, which is kept before anything is done with the access token:
// GitLab has ended the old one. A power cut between its answer and ours to the
// disk ends the authorization, and a person has to give another token. Source:
// GitLab, "OAuth 2.0 identity provider API".
func (p *gitlab) refresh(ctx context.Context, r Request, app application) (auth.Token, error) {
	name := app.vaultName(r.Address.HostPort())
	newest, err := p.newest(ctx, name)
	if err != nil {
		return auth.Token{}, invalid("use provider gitlab", "read the refresh token that is kept: %w", err)
	}
	newest = cmp.Or(newest, app.refresh)
	form := url.Values{"grant_type": {"refresh_token"}, "client_id": {app.id}, "refresh_token": {newest}}
	if app.secret != "" {
		form.Set("client_secret", app.secret)
	}
	if app.redirect != "" {
		form.Set("redirect_uri", app.redirect)
	}
	c := call{op: "exchange a refresh token", identity: "GitLab application " + app.id + " of " + r.Place, method: http.MethodPost, tls: r.TLS,
		url: r.Address.Scheme + "://" + r.Address.HostPort() + "/oauth/token", body: form.Encode(), secrets: []string{app.secret, app.refresh, newest}}
	// Who asks may lose interest; the answer may not be lost.
	got, err := p.do(context.WithoutCancel(ctx), c)
	if err != nil {
		return auth.Token{}, err
	}
	answered, token, err := grant(got.body, got.at)
	if err != nil && answered.Life == 0 && printable(answered.Token) {
		token, err = living(answered.Token, gitlabLife)
	}
	if answered.Refresh != "" {
		p.hold(name, answered.Refresh)
		p.save(context.WithoutCancel(ctx), name)
	}
	if err != nil {
		return auth.Token{}, c.fail(netx.Protocol, 0, err)
	}
	return token, nil
}

// newest is the refresh token that has replaced the given one, "" when none has.
// What could not be saved yet comes before what is saved.
func (p *gitlab) newest(ctx context.Context, name string) (string, error) {
	p.mu.Lock()
	unsaved := p.unsaved[name]
	p.mu.Unlock()
	if unsaved != "" {
		return unsaved, nil
	}
	saved, err := p.o.Vault.Secret(ctx, name)
	return string(saved), err
}

func (p *gitlab) hold(name, refresh string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsaved == nil {
		p.unsaved = map[string]string{}
	}
	p.unsaved[name] = refresh
}

// save keeps a refresh token. When it cannot, because the disk is full, the token
// stays in memory and each look-up tries again.
func (p *gitlab) save(ctx context.Context, name string) {
	p.mu.Lock()
	unsaved := p.unsaved[name]
	p.mu.Unlock()
	if unsaved == "" || p.o.Vault.PutSecret(ctx, name, []byte(unsaved)) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsaved[name] == unsaved {
		delete(p.unsaved, name)
	}
}
