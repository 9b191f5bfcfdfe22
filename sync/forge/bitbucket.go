package forge

import (
	"context"
	"net/http"
	"net/url"
)

// bitbucket is a repository at Bitbucket Cloud. Source:
// developer.atlassian.com/cloud/bitbucket/rest, webhooks and repositories.
type bitbucket struct {
	*caller
	place Place
}

func (b *bitbucket) events() []string {
	return []string{"pullrequest:created", "pullrequest:updated", "repo:push"}
}

type bitbucketHook struct {
	UUID        string   `json:"uuid,omitempty"`
	Description string   `json:"description"`
	URL         string   `json:"url"`
	Active      bool     `json:"active"`
	SkipCert    bool     `json:"skip_cert_verification"`
	Events      []string `json:"events"`
	Secret      string   `json:"secret,omitempty"` // answers say only secret_set
}

func (h bitbucketHook) hook() Hook {
	return Hook{ID: h.UUID, URL: h.URL, Events: h.Events, Active: h.Active, InsecureTLS: h.SkipCert}
}

func bitbucketForm(h Hook) bitbucketHook {
	return bitbucketHook{Description: "limpet", URL: h.URL, Active: true, SkipCert: h.InsecureTLS, Events: h.Events, Secret: string(h.Secret)}
}

func (b *bitbucket) path(rest string) string { return "/repositories/" + b.place.escaped() + rest }

func (b *bitbucket) hooks(ctx context.Context, page int) ([]Hook, bool, error) {
	list, err := ask[struct {
		Values []bitbucketHook `json:"values"`
		Next   string          `json:"next"`
	}](ctx, b.caller, request{op: "list webhooks of " + b.place.Path, method: http.MethodGet, path: b.path("/hooks"), query: pageOf(page, "pagelen")})
	return hooksOf(list.Values, bitbucketHook.hook), list.Next != "", err
}

func (b *bitbucket) hook(ctx context.Context, id string) (Hook, error) {
	h, err := ask[bitbucketHook](ctx, b.caller, request{op: "read webhook of " + b.place.Path, method: http.MethodGet, path: b.path("/hooks/" + url.PathEscape(id))})
	return h.hook(), err
}

func (b *bitbucket) create(ctx context.Context, h Hook) (Hook, error) {
	made, err := ask[bitbucketHook](ctx, b.hiding(h.Secret), request{op: "create webhook of " + b.place.Path, method: http.MethodPost,
		path: b.path("/hooks"), body: bitbucketForm(h)})
	return made.hook(), err
}

func (b *bitbucket) edit(ctx context.Context, h Hook) (Hook, error) {
	made, err := ask[bitbucketHook](ctx, b.hiding(h.Secret), request{op: "edit webhook of " + b.place.Path, method: http.MethodPut,
		path: b.path("/hooks/" + url.PathEscape(h.ID)), body: bitbucketForm(h)})
	return made.hook(), err
}

func (b *bitbucket) remove(ctx context.Context, id string) error {
	return send(ctx, b.caller, request{op: "delete webhook of " + b.place.Path, method: http.MethodDelete, path: b.path("/hooks/" + url.PathEscape(id))})
}

func (b *bitbucket) facts(ctx context.Context) (Facts, error) {
	f, err := ask[struct {
		FullName   string `json:"full_name"`
		MainBranch *struct {
			Name string `json:"name"`
		} `json:"mainbranch"`
	}](ctx, b.caller, request{op: "read repository " + b.place.Path, method: http.MethodGet, path: b.path("")})
	out := Facts{FullName: f.FullName}
	if f.MainBranch != nil {
		out.DefaultBranch = f.MainBranch.Name
	}
	return out, err
}

// protection is told to administrators of a repository only, as rules that name
// branches by pattern, users and groups. What they mean for a token cannot be
// read off them.
func (b *bitbucket) protection(context.Context, string) (Protection, error) {
	return ProtectionUnknown, nil
}
