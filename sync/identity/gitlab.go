package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"limpet/sync/auth"
	"limpet/sync/forge"
)

// gitlab gives the tokens of GitLab the user names that they want: deploy tokens
// have one of their own, personal, group, project and OAuth tokens take oauth2.
// For an OAuth application it exchanges refresh tokens. GitLab takes no token of
// another party for Git, so there is no exchange of such.
type gitlab struct{ *desk }

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
	key := r.key("https://" + r.Address.HostPort())
	token, err := p.token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.refresh(ctx, r, app) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: "oauth2", Password: token.Value, Forget: p.refused(key, token)}, nil
}

// application is an OAuth application of GitLab, and the refresh token that a
// person has got for it.
type application struct{ id, secret, redirect, refresh string }

// held is what the vault keeps: the newest refresh token, and the one that it
// goes back to. When a person gives another one, that is used.
type held struct {
	Given  string `json:"given"` // hash
	Newest string `json:"newest"`
}

// gitlabLife is how long an access token lives where the answer does not say.
// Source: GitLab 15.0.
const gitlabLife = 2 * time.Hour

// vaultName is where the refresh token of a place is kept.
func vaultName(r Request, app application) string {
	sum := sha256.Sum256([]byte(r.Place + "\x00" + r.Address.HostPort() + "\x00" + app.id))
	return "gitlab-refresh/" + hex.EncodeToString(sum[:8])
}

// refresh exchanges the newest refresh token for an access token and the next
// refresh token, which is kept before anything is done with the access token:
// GitLab has ended the old one. A power cut between its answer and ours to the
// disk ends the authorization, and a person has to give another token. Source:
// GitLab, "OAuth 2.0 identity provider API".
func (p *gitlab) refresh(ctx context.Context, r Request, app application) (auth.Token, error) {
	sum := sha256.Sum256([]byte(app.refresh))
	given, name := hex.EncodeToString(sum[:]), vaultName(r, app)
	newest := app.refresh
	text, err := p.o.Vault.Secret(ctx, name)
	if err != nil {
		return auth.Token{}, invalid("use provider gitlab", "read the refresh token that is kept: %w", err)
	}
	var kept held
	if json.Unmarshal(text, &kept) == nil && kept.Given == given && kept.Newest != "" {
		newest = kept.Newest
	}
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
		text, bad := json.Marshal(held{Given: given, Newest: answered.Refresh})
		if bad == nil {
			bad = p.o.Vault.PutSecret(context.WithoutCancel(ctx), name, text)
		}
		if bad != nil {
			return auth.Token{}, c.fail(forge.Refused, 0, bad)
		}
	}
	if err != nil {
		return auth.Token{}, c.fail(forge.Protocol, 0, err)
	}
	return token, nil
}
