package forge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/netx"
)

// dialect is what differs between the APIs of hosts.
type dialect struct {
	scheme     string             // of the header Authorization
	root       func(Place) string // path of a repository
	size       string             // parameter of a list: how many on a page
	change     string             // method that edits a webhook
	events     []string           // of a webhook
	read       func(json.RawMessage) (Hook, error)
	write      func(Hook) any // without an id it is a new one
	protection func(ctx context.Context, r *Remote, branch string) (Protection, error)

	status     func(p Place, commit string, s CommitStatus) (path string, body any)
	statusText int // most bytes of its text
	pulls      pullPaths
	marker     string // text that a comment holds and does not show
}

// pullPaths are where a pull request is, by its number.
type pullPaths struct {
	pull     string
	comments string // list
	comment  string // one, by number and id
	refs     string // in Git, before head and merge; "" = there are none
	base     string // what two commits have in common; "" = the pull request says it
}

var dialects = map[Kind]dialect{
	GitHub:           github,
	GitHubEnterprise: github,
	GitLab:           gitlab,
	Bitbucket:        bitbucket,
	Gitea:            gitea,
}

// readAs decodes the wire form W of a webhook.
func readAs[W any](hook func(W) Hook) func(json.RawMessage) (Hook, error) {
	return func(data json.RawMessage) (Hook, error) {
		var w W
		err := json.Unmarshal(data, &w)
		return hook(w), err
	}
}

func repos(p Place) string { return "/repos/" + segments(p.Path) }

// github is GitHub and GitHub Enterprise. Source: docs.github.com/rest: webhooks, branches,
// statuses, pulls and comments.
var github = dialect{
	scheme: "Bearer ",
	root:   repos,
	size:   "per_page",
	change: http.MethodPatch,
	events: []string{"push", "pull_request"},
	read: readAs(func(h githubHook) Hook {
		return Hook{ID: strconv.FormatInt(h.ID, 10), URL: h.Config.URL, Events: h.Events, Active: h.Active}
	}),
	write: func(h Hook) any {
		out := githubHook{Active: true, Events: h.Events,
			Config: githubConfig{URL: h.URL, ContentType: "json", InsecureSSL: "0", Secret: string(h.Secret)}}
		if h.ID == "" { // it cannot be changed
			out.Name = "web"
		}
		return out
	},
	protection: githubProtection,
	status:     contextStatus,
	statusText: 140,
	pulls:      pullPaths{"/pulls/%d", "/issues/%d/comments", "/issues/comments/%[2]s", "refs/pull/%d/", "/compare/%s...%s"},
	marker:     "<!-- %s -->",
}

// githubHeader asks for the version of the API that these structs are of. A server that
// is older does not know the header.
var githubHeader = map[string]string{"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}

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
	InsecureSSL any    `json:"insecure_ssl"`     // "0", as a text or as a number
	Secret      string `json:"secret,omitempty"` // answers hold asterisks
}

// githubProtection needs the right "administration: read". GitHub answers 404 with these words
// where there is none.
func githubProtection(ctx context.Context, r *Remote, branch string) (Protection, error) {
	p, err := ask[struct {
		Reviews json.RawMessage `json:"required_pull_request_reviews"`
		Lock    struct {
			Enabled bool `json:"enabled"`
		} `json:"lock_branch"`
	}](ctx, r.caller, r.request("read branch protection of", http.MethodGet, "/branches/"+url.PathEscape(branch)+"/protection"))
	switch {
	case netx.KindOf(err) == netx.NotFound && strings.Contains(err.Error(), "Branch not protected"):
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

// gitlab is GitLab. Source: docs.gitlab.com/api: project webhooks, branches, commits, merge
// requests and notes.
var gitlab = dialect{
	scheme: "Bearer ",
	root:   func(p Place) string { return "/projects/" + url.PathEscape(p.Path) },
	size:   "per_page",
	change: http.MethodPut,
	events: []string{"merge_requests_events", "push_events"},
	// The wire form has switches beside id and url.
	read: readAs(func(h map[string]any) Hook {
		out := Hook{Active: true}
		if id, ok := h["id"].(float64); ok {
			out.ID = strconv.FormatInt(int64(id), 10)
		}
		out.URL, _ = h["url"].(string)
		for _, event := range gitlabEvents {
			if on, _ := h[event].(bool); on {
				out.Events = append(out.Events, event)
			}
		}
		return out
	}),
	write: func(h Hook) any {
		out := map[string]any{"url": h.URL, "enable_ssl_verification": true, "token": string(h.Secret)}
		for _, event := range gitlabEvents {
			out[event] = slices.Contains(h.Events, event)
		}
		return out
	},
	protection: gitlabProtection,
	status:     gitlabStatus,
	statusText: 255,
	pulls:      pullPaths{"/merge_requests/%d", "/merge_requests/%d/notes", "/merge_requests/%d/notes/%s", "refs/merge-requests/%d/", ""},
	marker:     "<!-- %s -->",
}

// gitlabEvents are the switches of a hook. All of them are written, so that an adopted hook sends
// what is wanted and nothing else; others that a later GitLab may have are left alone.
var gitlabEvents = []string{
	"confidential_issues_events", "confidential_note_events", "deployment_events", "feature_flag_events", "issues_events", "job_events",
	"merge_requests_events", "note_events", "pipeline_events", "push_events", "releases_events", "tag_push_events", "wiki_page_events",
}

// gitlabProtection is what GitLab says of this identity and the branch.
func gitlabProtection(ctx context.Context, r *Remote, branch string) (Protection, error) {
	b, err := ask[struct {
		Protected bool  `json:"protected"`
		CanPush   *bool `json:"can_push"`
	}](ctx, r.caller, r.request("read branch protection of", http.MethodGet, "/repository/branches/"+url.PathEscape(branch)))
	if err == nil && b.Protected && b.CanPush != nil && !*b.CanPush {
		return Locked, nil
	}
	return Unprotected, err
}

// gitea is Gitea and Forgejo. Source: the swagger page of either: hooks, branches, statuses, pulls
// and issue comments.
var gitea = dialect{
	scheme: "token ", // which every version takes
	root:   repos,
	size:   "limit",
	change: http.MethodPatch,
	events: []string{"push", "pull_request"},
	read: readAs(func(h giteaHook) Hook {
		out := Hook{ID: strconv.FormatInt(h.ID, 10), URL: h.Config["url"], Events: h.Events, Active: h.Active}
		// pull_request stands for all that happens to one, and is answered with the list of it.
		if slices.Contains(h.Events, "pull_request") {
			out.Events = slices.DeleteFunc(h.Events, func(e string) bool { return strings.HasPrefix(e, "pull_request_") })
		}
		return out
	}),
	write: func(h Hook) any {
		out := giteaHook{Active: true, Events: h.Events,
			Config: map[string]string{"url": h.URL, "content_type": "json", "secret": string(h.Secret)}}
		if h.ID == "" { // it cannot be changed
			out.Type = "gitea"
		}
		return out
	},
	protection: giteaProtection,
	status:     contextStatus,
	statusText: 255,
	pulls:      pullPaths{"/pulls/%d", "/issues/%d/comments", "/issues/comments/%[2]s", "refs/pull/%d/", ""},
	marker:     "<!-- %s -->",
}

type giteaHook struct {
	ID     int64             `json:"id,omitempty"`
	Type   string            `json:"type,omitempty"`
	Config map[string]string `json:"config"`
	Events []string          `json:"events"`
	Active bool              `json:"active"`
}

// giteaProtection is what Gitea says of this identity and the branch.
func giteaProtection(ctx context.Context, r *Remote, branch string) (Protection, error) {
	b, err := ask[struct {
		Protected bool  `json:"protected"`
		Approvals int64 `json:"required_approvals"`
		CanPush   *bool `json:"user_can_push"`
	}](ctx, r.caller, r.request("read branch protection of", http.MethodGet, "/branches/"+url.PathEscape(branch)))
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

// bitbucket is Bitbucket Cloud. Source: developer.atlassian.com/cloud/bitbucket/rest: webhooks,
// statuses and pull requests.
var bitbucket = dialect{
	scheme: "Bearer ",
	root:   func(p Place) string { return "/repositories/" + segments(p.Path) },
	size:   "pagelen",
	change: http.MethodPut,
	events: []string{"pullrequest:created", "pullrequest:updated", "repo:push"},
	read: readAs(func(h bitbucketHook) Hook {
		return Hook{ID: h.UUID, URL: h.URL, Events: h.Events, Active: h.Active}
	}),
	write: func(h Hook) any {
		return bitbucketHook{Description: "limpet", URL: h.URL, Active: true, Events: h.Events, Secret: string(h.Secret)}
	},
	// Administrators alone see it, as rules that name branches by pattern, users and groups.
	// Their effect on a token cannot be derived.
	protection: func(context.Context, *Remote, string) (Protection, error) { return ProtectionUnknown, nil },
	status:     bitbucketStatus,
	statusText: 255,
	pulls:      pullPaths{"/pullrequests/%d", "/pullrequests/%d/comments", "/pullrequests/%d/comments/%s", "", "/merge-base/%s..%s"},
	marker:     "[//]: # (%s)", // its Markdown knows no other comment
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
