package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"limpet/sync/auth"
)

// InstallationToken mints a token for all repositories of an installation. It looks
// up the installation of an owner first when only that is known.
func (h *Hosts) InstallationToken(ctx context.Context, i auth.AppIdentity) (auth.Token, error) {
	who := Connection{Name: i.Secret.Source}
	for name, value := range map[string]string{"githubAppID": i.AppID, "githubAppInstallationID": cmp.Or(i.Installation, "0")} {
		if value == "" || strings.Trim(value, "0123456789") != "" {
			return auth.Token{}, invalid("use "+i.Secret.Source, "%s is not a number", name)
		}
	}
	key, err := privateKey(i.Secret.PrivateKey)
	if err != nil {
		return auth.Token{}, invalid("use "+i.Secret.Source, "githubAppPrivateKey cannot be used: %w", err)
	}
	a := &app{h: h, c: who, base: strings.TrimSuffix(cmp.Or(i.API, "https://api.github.com"), "/"), id: i.AppID, install: i.Installation,
		key: key, secret: i.Secret}
	if a.install == "" {
		if a.install, err = a.installationOf(ctx, i.Owner); err != nil {
			return auth.Token{}, err
		}
	}
	a.grantsKey = strings.Join([]string{a.base, a.id, a.install}, " ")
	return a.make(ctx, request{op: "make a token of installation " + a.install, method: http.MethodPost,
		path: "/app/installations/" + url.PathEscape(a.install) + "/access_tokens"})
}

// installationOf returns the installation of an organization, or else of a user.
// GitHub answers 404 for the wrong kind of owner.
func (a *app) installationOf(ctx context.Context, owner string) (string, error) {
	var all []error
	var kind ErrorKind
	for _, kinds := range []string{"orgs", "users"} {
		r := request{op: "find the installation of " + owner, method: http.MethodGet, path: "/" + kinds + "/" + url.PathEscape(owner) +
			"/installation"}
		a.grantsKey = strings.Join([]string{a.base, a.id, owner}, " ")
		c, got, err := a.call(ctx, r)
		if err == nil {
			found, err := into[struct {
				ID int64 `json:"id"`
			}](c, r, got)
			if err == nil && found.ID <= 0 {
				err = c.fail(r, Protocol, 0, errors.New("the answer names no installation"))
			}
			return fmt.Sprint(found.ID), err
		}
		if k := KindOf(err); k != NotFound && k != Forbidden {
			return "", err
		} else if kind == "" || k == NotFound {
			kind = k
		}
		all = append(all, err)
	}
	return "", &Error{Kind: kind, Op: "find the installation of " + owner, Err: fmt.Errorf("%w; %w", all[0], all[1])}
}

// make mints a token and validates the answer.
func (a *app) make(ctx context.Context, r request) (auth.Token, error) {
	c, got, err := a.call(ctx, r)
	if err != nil {
		return auth.Token{}, err
	}
	made, err := into[struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}](c, r, got)
	if err != nil {
		return auth.Token{}, err
	}
	// By the clock of the host: the local one may be wrong.
	life := made.Expires.Sub(got.at)
	switch {
	case made.Token == "" || strings.ContainsFunc(made.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return auth.Token{}, c.fail(r, Protocol, http.StatusCreated, errors.New("the answer holds no token"))
	case life <= 0:
		return auth.Token{}, c.fail(r, Protocol, http.StatusCreated, errors.New("the token that it makes has ended already"))
	}
	return auth.Token{Value: made.Token, Minted: time.Now(), Expires: made.Expires, Life: min(life, maxTokenLife)}, nil
}
