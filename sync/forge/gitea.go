package forge

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// gitea is a repository at Gitea or Forgejo. Source: the swagger page of either,
// repository hooks, repositories and branches.
type gitea struct {
	*caller
	place Place
}

func (g *gitea) events() []string { return []string{"push", "pull_request"} }

type giteaHook struct {
	ID     int64             `json:"id,omitempty"`
	Type   string            `json:"type,omitempty"`
	Config map[string]string `json:"config"`
	Events []string          `json:"events"`
	Active bool              `json:"active"`
}

// hook reads the wire form. Gitea takes pull_request for all that happens to a
// pull request, and answers with the list of it.
func (h giteaHook) hook() Hook {
	out := Hook{ID: strconv.FormatInt(h.ID, 10), URL: h.Config["url"], Events: h.Events, Active: h.Active}
	if slices.Contains(h.Events, "pull_request") {
		out.Events = slices.DeleteFunc(slices.Clone(h.Events), func(e string) bool { return strings.HasPrefix(e, "pull_request_") })
	}
	return out
}

func giteaForm(h Hook) giteaHook {
	out := giteaHook{Type: "gitea", Active: true, Events: h.Events, Config: map[string]string{"url": h.URL, "content_type": "json"}}
	if h.Secret != "" {
		out.Config["secret"] = string(h.Secret)
	}
	return out
}

func (g *gitea) path(rest string) string { return "/repos/" + g.place.escaped() + rest }

func (g *gitea) hooks(ctx context.Context, page int) ([]Hook, bool, error) {
	r := request{op: "list webhooks of " + g.place.Path, method: http.MethodGet, path: g.path("/hooks"), query: pageOf(page, "limit")}
	a, err := g.do(ctx, r)
	if err != nil {
		return nil, false, err
	}
	found, err := into[[]giteaHook](g.caller, r, a)
	return hooksOf(found, giteaHook.hook), hasNext(a.header), err
}

func (g *gitea) hook(ctx context.Context, id string) (Hook, error) {
	h, err := ask[giteaHook](ctx, g.caller, request{op: "read webhook of " + g.place.Path, method: http.MethodGet, path: g.path("/hooks/" + url.PathEscape(id))})
	return h.hook(), err
}

func (g *gitea) create(ctx context.Context, h Hook) (Hook, error) {
	made, err := ask[giteaHook](ctx, g.hiding(h.Secret), request{op: "create webhook of " + g.place.Path, method: http.MethodPost,
		path: g.path("/hooks"), body: giteaForm(h)})
	return made.hook(), err
}

func (g *gitea) edit(ctx context.Context, h Hook) (Hook, error) {
	form := giteaForm(h)
	form.Type = "" // cannot be changed
	made, err := ask[giteaHook](ctx, g.hiding(h.Secret), request{op: "edit webhook of " + g.place.Path, method: http.MethodPatch,
		path: g.path("/hooks/" + url.PathEscape(h.ID)), body: form})
	return made.hook(), err
}

func (g *gitea) remove(ctx context.Context, id string) error {
	return send(ctx, g.caller, request{op: "delete webhook of " + g.place.Path, method: http.MethodDelete, path: g.path("/hooks/" + url.PathEscape(id))})
}

func (g *gitea) facts(ctx context.Context) (Facts, error) {
	f, err := ask[struct {
		ID            int64  `json:"id"`
		FullName      string `json:"full_name"`
		DefaultBranch string `json:"default_branch"`
		Archived      bool   `json:"archived"`
	}](ctx, g.caller, request{op: "read repository " + g.place.Path, method: http.MethodGet, path: g.path("")})
	return Facts(f), err
}

// protection is what Gitea says of this identity and the branch.
func (g *gitea) protection(ctx context.Context, branch string) (Protection, error) {
	b, err := ask[struct {
		Protected bool  `json:"protected"`
		Approvals int64 `json:"required_approvals"`
		CanPush   *bool `json:"user_can_push"`
	}](ctx, g.caller, request{op: "read branch protection of " + g.place.Path, method: http.MethodGet,
		path: g.path("/branches/" + url.PathEscape(branch))})
	switch {
	case err != nil:
		return ProtectionUnknown, err
	case !b.Protected || b.CanPush == nil || *b.CanPush:
		return Unprotected, nil
	case b.Approvals > 0:
		return ReviewsRequired, nil
	}
	return Locked, nil
}
