package forgetest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// gitlabSwitches are the events of a GitLab hook.
var gitlabSwitches = []string{"push_events", "tag_push_events", "merge_requests_events", "issues_events", "confidential_issues_events",
	"note_events", "confidential_note_events", "job_events", "pipeline_events", "wiki_page_events", "deployment_events", "releases_events",
	"feature_flag_events"}

func (c *call) gitlab(status int, message any) { c.answer(status, map[string]any{"message": message}) }

func serveGitLab(c *call) {
	rights := c.rights("")
	switch {
	case rights == nil:
		c.gitlab(http.StatusUnauthorized, "401 Unauthorized")
		return
	case c.parts[0] == "user" && rights.Scope != "":
		c.answer(http.StatusForbidden, map[string]any{"error": "insufficient_scope",
			"error_description": "The request requires higher privileges than provided by the access token.", "scope": "api read_user read_api"})
		return
	case c.parts[0] == "user":
		c.answer(http.StatusOK, map[string]any{"id": 7, "username": "project_1_bot", "bot": true})
		return
	case c.parts[0] == "version":
		c.answer(http.StatusOK, map[string]any{"version": "17.5.0", "revision": "abc"})
		return
	}
	path, _ := url.PathUnescape(c.parts[1])
	repo := c.h.repos[path]
	switch rest := c.parts[2:]; {
	case repo == nil:
		c.gitlab(http.StatusNotFound, "404 Project Not Found")
	case len(rest) == 0:
		c.answer(http.StatusOK, map[string]any{"id": repo.ID, "path_with_namespace": path, "default_branch": repo.DefaultBranch,
			"archived":   repo.Archived,
			"visibility": "private"})
	case c.report("gitlab", repo, rights, rest):
	case rest[0] == "repository" && len(rest) == 3:
		branch, _ := url.PathUnescape(rest[2])
		c.answer(http.StatusOK, map[string]any{"name": branch, "protected": repo.Protected[branch] != "",
			"can_push": repo.Protected[branch] == ""})
	case rest[0] == "hooks" && !rights.Hooks:
		c.gitlab(http.StatusForbidden, "403 Forbidden")
	case rest[0] == "hooks":
		c.hooks(repo, rest[1:], "per_page", c.gitlabHook, gitlabTake, http.MethodPut,
			func(id string) any { return map[string]any{"message": "404 Not found"} })
	}
}

func (c *call) gitlabHook(hook *Hook) map[string]any {
	out := map[string]any{"id": number(hook.ID), "url": hook.URL, "project_id": 3, "enable_ssl_verification": !hook.InsecureTLS,
		"created_at": "2026-11-20T12:00:00.000Z", "alert_status": "executable", "disabled_until": nil, "push_events_branch_filter": ""}
	for _, event := range gitlabSwitches {
		out[event] = slices.Contains(hook.Events, event)
	}
	return out
}

// gitlabTake changes what the form holds and leaves the rest.
func gitlabTake(form map[string]any, hook *Hook) any {
	raw, _ := form["url"].(string)
	if u, err := url.Parse(raw); err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return map[string]any{"message": map[string]any{"url": []string{"is blocked: Only allowed schemes are http, https"}}}
	}
	hook.URL = raw
	if hook.ID == "" {
		hook.Events = []string{"push_events"} // the default of a new one
	}
	for _, event := range gitlabSwitches {
		on, set := form[event].(bool)
		switch at := slices.Index(hook.Events, event); {
		case set && on && at < 0:
			hook.Events = append(hook.Events, event)
		case set && !on && at >= 0:
			hook.Events = slices.Delete(hook.Events, at, at+1)
		}
	}
	if s, ok := form["token"].(string); ok {
		hook.Secret = s
	}
	if verify, ok := form["enable_ssl_verification"].(bool); ok {
		hook.InsecureTLS = !verify
	}
	hook.ContentType = "json"
	return nil
}

func (c *call) bitbucket(status int, message string) {
	c.answer(status, map[string]any{"type": "error", "error": map[string]any{"message": message}})
}

func serveBitbucket(c *call) {
	rights := c.rights("")
	switch {
	case rights == nil:
		c.bitbucket(http.StatusUnauthorized, "Token is invalid or not supported for this endpoint.")
		return
	case c.parts[0] == "user" && rights.Scope != "":
		c.bitbucket(http.StatusForbidden, "Your credentials lack one or more required privilege scopes.")
		return
	case c.parts[0] == "user":
		c.answer(http.StatusOK, map[string]any{"type": "user", "uuid": "{u}", "display_name": "limpet"})
		return
	case len(c.parts) == 2:
		c.answer(http.StatusOK, map[string]any{"values": []any{}, "pagelen": 1, "size": 0, "page": 1})
		return
	}
	path := strings.Join(c.parts[1:3], "/")
	repo := c.h.repos[path]
	switch rest := c.parts[3:]; {
	case repo == nil:
		c.bitbucket(http.StatusNotFound, "Repository "+path+" not found")
	case len(rest) == 0:
		c.answer(http.StatusOK, map[string]any{"type": "repository", "uuid": "{r}", "full_name": path,
			"mainbranch": map[string]any{"type": "branch", "name": repo.DefaultBranch}})
	case c.report("bitbucket", repo, rights, rest):
	case rest[0] == "hooks" && !rights.Hooks:
		c.bitbucket(http.StatusForbidden, "Your credentials lack one or more required privilege scopes.")
	case rest[0] == "hooks":
		c.hooks(repo, rest[1:], "pagelen", c.bitbucketHook, bitbucketTake, http.MethodPut, func(id string) any {
			return map[string]any{"type": "error", "error": map[string]any{"message": "Webhook with uuid " + id + " does not exist"}}
		})
	}
}

func (c *call) bitbucketHook(hook *Hook) map[string]any {
	return map[string]any{"type": "webhook_subscription", "uuid": hook.ID, "url": hook.URL, "description": "limpet", "active": !hook.Inactive,
		"events": hook.Events, "skip_cert_verification": hook.InsecureTLS, "secret_set": hook.Secret != "", "subject_type": "repository"}
}

func bitbucketTake(form map[string]any, hook *Hook) any {
	hook.URL, _ = form["url"].(string)
	hook.Events = texts(form["events"])
	hook.Inactive = form["active"] == false
	hook.InsecureTLS = form["skip_cert_verification"] == true
	if s, ok := form["secret"].(string); ok {
		hook.Secret = s
	}
	hook.ContentType = "json"
	if hook.ID == "" {
		raw := make([]byte, 8)
		rand.Read(raw)
		hook.ID = "{" + hex.EncodeToString(raw) + "}"
	}
	return nil
}

// giteaPull is what Gitea makes of "pull_request".
var giteaPull = []string{"pull_request", "pull_request_assign", "pull_request_label", "pull_request_milestone", "pull_request_comment",
	"pull_request_review_approved", "pull_request_sync", "pull_request_review_request"}

func (c *call) gitea(status int, message string) {
	c.answer(status, map[string]any{"message": message, "url": c.h.URL + "/api/swagger"})
}

func serveGitea(c *call) {
	rights := c.rights("")
	switch {
	case c.parts[0] == "version":
		c.answer(http.StatusOK, map[string]any{"version": "9.0.3+gitea-1.22.0"})
		return
	case rights == nil:
		c.gitea(http.StatusUnauthorized, "user does not exist [uid: 0, name: ]")
		return
	case c.parts[0] != "repos" || len(c.parts) < 3:
		c.gitea(http.StatusNotFound, "The target couldn't be found.")
		return
	}
	path := strings.Join(c.parts[1:3], "/")
	repo := c.h.repos[path]
	switch rest := c.parts[3:]; {
	case repo == nil:
		c.gitea(http.StatusNotFound, "The target couldn't be found.")
	case len(rest) == 0:
		c.answer(http.StatusOK, map[string]any{"id": repo.ID, "full_name": path, "default_branch": repo.DefaultBranch, "archived": repo.Archived,
			"empty": false})
	case c.report("gitea", repo, rights, rest):
	case rest[0] == "branches" && len(rest) == 2:
		branch, _ := url.PathUnescape(rest[1])
		kept := repo.Protected[branch]
		approvals := map[string]int{"reviews": 1}[kept]
		c.answer(http.StatusOK, map[string]any{"name": branch, "protected": kept != "", "required_approvals": approvals,
			"user_can_push": kept == "", "user_can_merge": kept != "locked"})
	case rest[0] == "hooks" && !rights.Hooks:
		c.gitea(http.StatusForbidden, "user should be an owner or a collaborator with admin write of a repository")
	case rest[0] == "hooks":
		c.hooks(repo, rest[1:], "limit", c.giteaHook, giteaTake, http.MethodPatch, func(id string) any {
			return map[string]any{"message": "The target couldn't be found.", "url": c.h.URL + "/api/swagger"}
		})
	}
}

func (c *call) giteaHook(hook *Hook) map[string]any {
	return map[string]any{"id": number(hook.ID), "type": "gitea", "branch_filter": "", "authorization_header": "", "active": !hook.Inactive,
		"events": hook.Events,
		"config": map[string]string{"content_type": hook.ContentType, "url": hook.URL}, "created_at": "2026-11-20T12:00:00Z"}
}

func giteaTake(form map[string]any, hook *Hook) any {
	if (form["type"] == "gitea") != (hook.ID == "") {
		return map[string]any{"message": "Invalid hook type"}
	}
	config, _ := form["config"].(map[string]any)
	hook.URL, _ = config["url"].(string)
	hook.ContentType, _ = config["content_type"].(string)
	if hook.ContentType == "" {
		return map[string]any{"message": "Missing config option: content_type"}
	}
	if s, ok := config["secret"].(string); ok {
		hook.Secret = s
	}
	hook.Inactive, hook.Events = form["active"] == false, nil
	for _, event := range texts(form["events"]) {
		if event == "pull_request" {
			hook.Events = append(hook.Events, giteaPull...)
			continue
		}
		hook.Events = append(hook.Events, event)
	}
	return nil
}

// hooks serves the webhooks of a repository for the hosts that differ in their
// shapes only. take writes a form into a hook and gives the body of a refusal.
func (c *call) hooks(repo *Repository, rest []string, size string, show func(*Hook) map[string]any, take func(map[string]any, *Hook) any,
	edit string, missing func(string) any) {
	if len(rest) == 0 && c.method == http.MethodGet {
		part, more := page(c, repo.hooks, size)
		out := []any{}
		for _, hook := range part {
			out = append(out, show(hook))
		}
		if size != "pagelen" {
			c.link(more)
			c.answer(http.StatusOK, out)
			return
		}
		body := map[string]any{"values": out, "page": 1, "size": len(repo.hooks)}
		if more {
			body["next"] = c.h.URL + c.r.URL.Path + "?page=next"
		}
		c.answer(http.StatusOK, body)
		return
	}
	if len(rest) == 0 {
		hook := &Hook{}
		if wrong := take(read[map[string]any](c), hook); wrong != nil {
			c.answer(http.StatusUnprocessableEntity, wrong)
			return
		}
		if hook.ID == "" {
			hook.ID = fmt.Sprint(c.h.number())
		}
		repo.hooks = append(repo.hooks, hook)
		c.answer(http.StatusCreated, show(hook))
		return
	}
	id, _ := url.PathUnescape(rest[0])
	hook, at := repo.find(id)
	switch {
	case hook == nil:
		c.answer(http.StatusNotFound, missing(id))
	case c.method == http.MethodGet:
		c.answer(http.StatusOK, show(hook))
	case c.method == edit:
		if wrong := take(read[map[string]any](c), hook); wrong != nil {
			c.answer(http.StatusUnprocessableEntity, wrong)
			return
		}
		c.answer(http.StatusOK, show(hook))
	case c.method == http.MethodDelete:
		repo.hooks = slices.Delete(repo.hooks, at, at+1)
		c.w.WriteHeader(http.StatusNoContent)
	default:
		c.answer(http.StatusMethodNotAllowed, nil)
	}
}

func number(id string) (n int64) {
	fmt.Sscan(id, &n)
	return n
}

func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, each := range list {
		if s, ok := each.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
