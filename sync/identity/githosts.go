package identity

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"limpet/sync/auth"
)

// github makes installation tokens of GitHub Apps. Over Git the token is the password of the user x-access-token.
type github struct{ *registry }

// Credentials implements Provider.
func (p *github) Credentials(ctx context.Context, r Request) (*auth.Credentials, error) {
	app, err := r.app()
	if err != nil {
		return nil, err
	}
	key := r.key("installation")
	token, err := p.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) { return p.o.Apps.InstallationToken(ctx, app) })
	if err != nil {
		return nil, err
	}
	return &auth.Credentials{Username: "x-access-token", Password: token.Value, Forget: p.forget(key, token)}, nil
}

// app reads the keys: Flux's as shipped, and those of its RFC.
func (r Request) app() (auth.AppIdentity, error) {
	op := "use the GitHub App of " + r.Place
	app := auth.AppIdentity{
		AppID:        r.Text("githubAppID"),
		Installation: cmp.Or(r.Text("githubAppInstallationID"), r.Text("githubInstallationID")),
		Owner:        r.Text("githubAppInstallationOwner"),
		API:          cmp.Or(r.Text("githubAppBaseURL"), r.Text("githubApiURl"), r.Text("githubApiURL")),
		Secret: &auth.Credentials{CA: r.TLS.CA, ClientCert: r.TLS.ClientCert, ClientKey: r.TLS.ClientKey, Proxy: r.TLS.Proxy, Source: r.Place,
			PrivateKey: []byte(cmp.Or(r.Text("githubAppPrivateKey"), r.Text("githubPrivateKey")))},
	}
	switch {
	case app.AppID == "":
		return app, invalid(op, "the key githubAppID is missing")
	case len(app.Secret.PrivateKey) == 0:
		return app, invalid(op, "the key githubAppPrivateKey is missing")
	case (app.Installation == "") == (app.Owner == ""):
		return app, invalid(op, "exactly one of the keys githubAppInstallationID and githubAppInstallationOwner is needed")
	}
	return app, r.sameHost(op, app.API)
}

// sameHost makes sure that tokens of an API are for the host that is cloned from.
func (r Request) sameHost(op, api string) error {
	u, err := url.Parse(cmp.Or(api, "https://api.github.com"))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http" {
		return invalid(op, "githubAppBaseURL is not an http or https URL without user and query")
	}
	clone, host := strings.TrimPrefix(r.Address.Host, "www."), strings.ToLower(u.Hostname())
	if r.Bound || clone == host || "api."+clone == host {
		return nil
	}
	return invalid(op, "its tokens are for %s, and the repository is at %s; for GitHub Enterprise give githubAppBaseURL",
		host, r.Address.HostPort())
}

// gitlab gives the tokens of GitLab the user names that they need: deploy tokens have one
// of their own, personal, group, project and OAuth tokens use oauth2. GitLab accepts no
// token of another party for Git, so there is no federation.
type gitlab struct{}

// Credentials implements Provider.
func (gitlab) Credentials(_ context.Context, r Request) (*auth.Credentials, error) {
	token := cmp.Or(r.Text("token"), r.Text("password"), r.Text("bearerToken"))
	if !auth.Printable(token) {
		return nil, invalid("use provider gitlab", "%s has neither token, nor username and password, "+
			"or the token contains a space or a control character", r.Place)
	}
	return &auth.Credentials{Username: cmp.Or(r.Text("username"), r.TokenUser, "oauth2"), Password: token}, nil
}
