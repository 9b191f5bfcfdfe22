package forge

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// gitlab is a project at GitLab. Source: docs.gitlab.com/api, project webhooks,
// projects and branches.
type gitlab struct{ registry[gitlabHook] }

func newGitLab(c *caller, p Place) *gitlab {
	return &gitlab{registry[gitlabHook]{caller: c, place: p, list: "/projects/" + url.PathEscape(p.Path) + "/hooks", size: "per_page",
		change: http.MethodPut, read: gitlabHook.hook, write: gitlabForm,
		more: func(h http.Header) bool { return hasNext(h) || h.Get("X-Next-Page") != "" }}}
}

func (g *gitlab) events() []string { return []string{"merge_requests_events", "push_events"} }

// gitlabEvents are the switches of a hook. All of them are written, so that an
// adopted hook sends what is wanted and nothing else; others that a later GitLab
// may have are left alone.
var gitlabEvents = []string{
	"confidential_issues_events", "confidential_note_events", "deployment_events", "feature_flag_events", "issues_events", "job_events",
	"merge_requests_events", "note_events", "pipeline_events", "push_events", "releases_events", "tag_push_events", "wiki_page_events",
}

// gitlabHook is the wire form: switches beside id, url and
// enable_ssl_verification.
type gitlabHook map[string]any

func (h gitlabHook) hook() Hook {
	out := Hook{Active: true}
	if id, ok := h["id"].(float64); ok {
		out.ID = strconv.FormatInt(int64(id), 10)
	}
	out.URL, _ = h["url"].(string)
	checked, said := h["enable_ssl_verification"].(bool)
	out.InsecureTLS = said && !checked
	for _, event := range gitlabEvents {
		if on, _ := h[event].(bool); on {
			out.Events = append(out.Events, event)
		}
	}
	return out
}

func gitlabForm(h Hook) gitlabHook {
	out := gitlabHook{"url": h.URL, "enable_ssl_verification": !h.InsecureTLS}
	if h.Secret != "" {
		out["token"] = string(h.Secret)
	}
	for _, event := range gitlabEvents {
		out[event] = slices.Contains(h.Events, event)
	}
	return out
}

func (g *gitlab) path(rest string) string {
	return "/projects/" + url.PathEscape(g.place.Path) + rest
}

func (g *gitlab) facts(ctx context.Context) (Facts, error) {
	f, err := ask[struct {
		ID            int64  `json:"id"`
		FullName      string `json:"path_with_namespace"`
		DefaultBranch string `json:"default_branch"`
		Archived      bool   `json:"archived"`
	}](ctx, g.caller, request{op: "read project " + g.place.Path, method: http.MethodGet, path: g.path("")})
	return Facts(f), err
}

// protection is what GitLab says of this identity and the branch.
func (g *gitlab) protection(ctx context.Context, branch string) (Protection, error) {
	b, err := ask[struct {
		Protected bool  `json:"protected"`
		CanPush   *bool `json:"can_push"`
	}](ctx, g.caller, request{op: "read branch protection of " + g.place.Path, method: http.MethodGet,
		path: g.path("/repository/branches/" + url.PathEscape(branch))})
	switch {
	case err != nil:
		return ProtectionUnknown, err
	case b.Protected && b.CanPush != nil && !*b.CanPush:
		return Locked, nil
	}
	return Unprotected, nil
}
