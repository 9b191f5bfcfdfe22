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
type gitea struct{ registry[giteaHook] }

func newGitea(c *caller, p Place) *gitea {
	return &gitea{registry[giteaHook]{caller: c, place: p, list: "/repos/" + p.escaped() + "/hooks", size: "limit",
		change: http.MethodPatch, read: giteaHook.hook, write: giteaForm, more: hasNext}}
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
	out := giteaHook{Active: true, Events: h.Events, Config: map[string]string{"url": h.URL, "content_type": "json"}}
	if h.ID == "" { // it cannot be changed
		out.Type = "gitea"
	}
	if h.Secret != "" {
		out.Config["secret"] = string(h.Secret)
	}
	return out
}

func (g *gitea) path(rest string) string { return "/repos/" + g.place.escaped() + rest }

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
