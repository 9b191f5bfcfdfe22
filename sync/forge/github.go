package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// githubHeader asks for the version of the API that these structs are of. A
// server that is older does not know the header.
var githubHeader = map[string]string{"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}

// github is a repository at GitHub or GitHub Enterprise.
// Source: docs.github.com/rest, webhooks, repos and branch protection.
type github struct{ registry[githubHook] }

func newGitHub(c *caller, p Place) *github {
	return &github{registry[githubHook]{caller: c, place: p, list: "/repos/" + p.escaped() + "/hooks", size: "per_page",
		change: http.MethodPatch, read: githubHook.hook, write: githubForm, more: hasNext}}
}

func (g *github) events() []string { return []string{"push", "pull_request"} }

// githubHook is the wire form. insecure_ssl is "0" or "1", as a text or as a
// number.
type githubHook struct {
	ID     int64        `json:"id,omitempty"`
	Name   string       `json:"name,omitempty"` // always "web"
	Active bool         `json:"active"`
	Events []string     `json:"events"`
	Config githubConfig `json:"config"`
}

type githubConfig struct {
	URL         string `json:"url"`
	ContentType string `json:"content_type"`
	InsecureSSL any    `json:"insecure_ssl"`
	Secret      string `json:"secret,omitempty"` // answers hold asterisks
}

func (h githubHook) hook() Hook {
	return Hook{ID: strconv.FormatInt(h.ID, 10), URL: h.Config.URL, Events: h.Events, Active: h.Active,
		InsecureTLS: fmt.Sprint(h.Config.InsecureSSL) == "1"}
}

func githubForm(h Hook) githubHook {
	out := githubHook{Active: true, Events: h.Events,
		Config: githubConfig{URL: h.URL, ContentType: "json", InsecureSSL: "0", Secret: string(h.Secret)}}
	if h.ID == "" { // it cannot be changed
		out.Name = "web"
	}
	if h.InsecureTLS {
		out.Config.InsecureSSL = "1"
	}
	return out
}

func (g *github) path(rest string) string { return "/repos/" + g.place.escaped() + rest }

func (g *github) facts(ctx context.Context) (Facts, error) {
	f, err := ask[struct {
		ID            int64  `json:"id"`
		FullName      string `json:"full_name"`
		DefaultBranch string `json:"default_branch"`
		Archived      bool   `json:"archived"`
	}](ctx, g.caller, request{op: "read repository " + g.place.Path, method: http.MethodGet, path: g.path("")})
	return Facts(f), err
}

// protection needs the right "administration: read". GitHub answers 404 with
// these words where there is none.
func (g *github) protection(ctx context.Context, branch string) (Protection, error) {
	p, err := ask[struct {
		Reviews json.RawMessage `json:"required_pull_request_reviews"`
		Lock    struct {
			Enabled bool `json:"enabled"`
		} `json:"lock_branch"`
	}](ctx, g.caller, request{op: "read branch protection of " + g.place.Path, method: http.MethodGet,
		path: g.path("/branches/" + url.PathEscape(branch) + "/protection")})
	switch {
	case KindOf(err) == NotFound && strings.Contains(err.Error(), "Branch not protected"):
		return Unprotected, nil
	case err != nil:
		return ProtectionUnknown, err
	case p.Lock.Enabled:
		return Locked, nil
	case len(p.Reviews) > 0 && string(p.Reviews) != "null":
		return ReviewsRequired, nil
	}
	return Unprotected, nil
}
