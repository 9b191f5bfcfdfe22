package forgetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// github is an error as GitHub writes it.
func (c *call) github(status int, message string, details ...any) {
	body := map[string]any{"message": message, "documentation_url": "https://docs.github.com/rest", "status": fmt.Sprint(status)}
	if len(details) > 0 {
		body["errors"] = details
	}
	c.answer(status, body)
}

func serveGitHub(c *call) {
	switch {
	case c.parts[0] == "app", len(c.parts) == 3 && c.parts[2] == "installation" && (c.parts[0] == "orgs" || c.parts[0] == "users"):
		serveApp(c)
		return
	case c.rights("") == nil:
		c.github(http.StatusUnauthorized, "Bad credentials")
		return
	case len(c.parts) == 1 && c.parts[0] == "user":
		c.answer(http.StatusOK, map[string]any{"login": "limpet", "id": 1})
		return
	case len(c.parts) < 3 || c.parts[0] != "repos":
		c.github(http.StatusNotFound, "Not Found")
		return
	}
	path := c.parts[1] + "/" + c.parts[2]
	repo, rights := c.h.repos[path], c.rights(path)
	if repo == nil || rights == nil {
		c.github(http.StatusNotFound, "Not Found")
		return
	}
	switch rest := c.parts[3:]; {
	case len(rest) == 0:
		c.answer(http.StatusOK, map[string]any{"id": repo.ID, "node_id": "R_x", "name": c.parts[2], "full_name": path, "private": true,
			"default_branch": repo.DefaultBranch, "archived": repo.Archived, "permissions": map[string]bool{"admin": true}})
	case c.report("github", repo, rights, rest):
	case rest[0] == "branches" && len(rest) == 3:
		githubProtection(c, repo, rights, rest[1])
	case rest[0] == "hooks" && !rights.Hooks:
		if _, minted := c.h.minted[c.token]; minted {
			c.github(http.StatusForbidden, "Resource not accessible by integration")
			return
		}
		c.github(http.StatusNotFound, "Not Found")
	case rest[0] == "hooks":
		githubHooks(c, repo, rest[1:])
	}
}

func githubProtection(c *call, repo *Repository, rights *Rights, branch string) {
	switch branch = strings.ReplaceAll(branch, "%2F", "/"); {
	case !rights.Admin:
		c.github(http.StatusForbidden, "Resource not accessible by integration")
	case repo.Protected[branch] == "":
		c.github(http.StatusNotFound, "Branch not protected")
	case repo.Protected[branch] == "reviews":
		c.answer(http.StatusOK, map[string]any{"required_pull_request_reviews": map[string]any{"required_approving_review_count": 1},
			"lock_branch": map[string]bool{"enabled": false}})
	default:
		c.answer(http.StatusOK, map[string]any{"lock_branch": map[string]bool{"enabled": true},
			"enforce_admins": map[string]bool{"enabled": true}})
	}
}

type githubHook struct {
	Name   string         `json:"name,omitempty"`
	Active *bool          `json:"active"`
	Events []string       `json:"events"`
	Config map[string]any `json:"config"`
}

func (c *call) githubHook(hook *Hook) map[string]any {
	config := map[string]any{"content_type": hook.ContentType, "insecure_ssl": "0", "url": hook.URL}
	if hook.InsecureTLS {
		config["insecure_ssl"] = "1"
	}
	if hook.Secret != "" {
		config["secret"] = "********"
	}
	var id int64
	fmt.Sscan(hook.ID, &id)
	return map[string]any{"type": "Repository", "id": id, "name": "web", "active": !hook.Inactive, "events": hook.Events, "config": config,
		"updated_at": "2026-11-20T12:00:00Z", "created_at": "2026-11-20T12:00:00Z",
		"last_response": map[string]any{"code": nil, "status": "unused", "message": nil}}
}

// take writes a form into a hook, and says what is wrong with it.
func (f githubHook) take(hook *Hook) string {
	if (f.Name == "web") != (hook.ID == "") {
		return "the name is web, and stays so"
	}
	url, _ := f.Config["url"].(string)
	if !strings.HasPrefix(url, "http") {
		return "url is missing a scheme"
	}
	for _, e := range f.Events {
		if !slices.Contains([]string{"push", "pull_request", "release"}, e) {
			return "not a valid event"
		}
	}
	hook.URL, hook.Events, hook.Inactive = url, f.Events, f.Active != nil && !*f.Active
	hook.ContentType, hook.Secret = "form", "" // what a config does not hold is gone
	if s, ok := f.Config["content_type"].(string); ok {
		hook.ContentType = s
	}
	hook.Secret, _ = f.Config["secret"].(string)
	hook.InsecureTLS = f.Config["insecure_ssl"] == "1"
	return ""
}

func githubHooks(c *call, repo *Repository, rest []string) {
	wrong := func(what string) {
		c.github(http.StatusUnprocessableEntity, "Validation Failed", map[string]string{"resource": "Hook", "code": "custom", "message": what})
	}
	if len(rest) == 0 {
		switch c.method {
		case http.MethodGet:
			part, more := page(c, repo.hooks, "per_page")
			out := []any{}
			for _, hook := range part {
				out = append(out, c.githubHook(hook))
			}
			c.link(more)
			c.answer(http.StatusOK, out)
		case http.MethodPost:
			form, hook := read[githubHook](c), &Hook{}
			if what := form.take(hook); what != "" {
				wrong(what)
				return
			}
			if slices.ContainsFunc(repo.hooks, func(other *Hook) bool { return other.URL == hook.URL }) {
				wrong("Hook already exists on this repository")
				return
			}
			hook.ID = fmt.Sprint(c.h.number())
			repo.hooks = append(repo.hooks, hook)
			c.answer(http.StatusCreated, c.githubHook(hook))
		}
		return
	}
	hook, at := repo.find(rest[0])
	switch {
	case hook == nil:
		c.github(http.StatusNotFound, "Not Found")
	case c.method == http.MethodGet:
		c.answer(http.StatusOK, c.githubHook(hook))
	case c.method == http.MethodPatch:
		if what := read[githubHook](c).take(hook); what != "" {
			wrong(what)
			return
		}
		c.answer(http.StatusOK, c.githubHook(hook))
	case c.method == http.MethodDelete:
		repo.hooks = slices.Delete(repo.hooks, at, at+1)
		c.w.WriteHeader(http.StatusNoContent)
	}
}
