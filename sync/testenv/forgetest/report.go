package forgetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Statuses of commits, and pull requests with their comments. Source of the wire: the REST
// reference of GitHub (commit statuses, pulls, issue comments; also Gitea's and Forgejo's, from
// their swagger pages), of GitLab (commits, merge requests, notes) and of Bitbucket Cloud (commit
// statuses, pull requests), with the limits that they state.

// Status is one that was written for a commit, in the words of GitHub.
type Status struct{ Commit, Context, State, Text, URL string }

// Pull is a pull request.
type Pull struct {
	Number             int64
	Branch, Head, Base string
	Fork, Closed       bool
	MergeBase          string // with Base
	Comments           []*Comment
}

// Comment is one on a pull request. Author "" is the token of a test.
type Comment struct {
	ID           int64
	Author, Body string
}

// SetPull makes a pull request, or changes one and leaves its comments.
func (h *Host) SetPull(path string, p Pull) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[path]
	if r.pulls == nil {
		r.pulls = map[int64]*Pull{}
	}
	if old := r.pulls[p.Number]; old != nil {
		p.Comments = old.Comments
	}
	r.pulls[p.Number] = &p
}

// AddComment makes a comment by another hand.
func (h *Host) AddComment(path string, pull int64, author, body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.repos[path].pulls[pull]
	p.Comments = append(p.Comments, &Comment{h.number(), author, body})
}

// Comments are those on a pull request.
func (h *Host) Comments(path string, pull int64) (out []Comment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.repos[path].pulls[pull].Comments {
		out = append(out, *c)
	}
	return out
}

// Statuses returns all statuses that were written, in order.
func (h *Host) Statuses(path string) []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.repos[path].statuses)
}

// refuse is an error in the form of a host.
func (c *call) refuse(host string, status int, message string) {
	map[string]func(int, string){"github": func(s int, m string) { c.github(s, m) }, "gitlab": func(s int, m string) { c.gitlab(s, m) },
		"gitea": c.gitea, "bitbucket": c.bitbucket}[host](status, message)
}

// report serves statuses, pull requests and comments; false = the path is none of these.
func (c *call) report(host string, repo *Repository, rights *Rights, rest []string) bool {
	at := strings.Join(rest, "/")
	var n, id int64
	var sha string
	scan := func(format string, to ...any) bool {
		got, err := fmt.Sscanf(strings.ReplaceAll(at, "/", " "), strings.ReplaceAll(format, "/", " "), to...)
		return err == nil && got == len(to) && strings.Count(at, "/") == strings.Count(format, "/")
	}
	pull, list, one := "pulls/%d", "issues/%d/comments", "issues/comments/%d"
	switch host {
	case "gitlab":
		pull, list, one = "merge_requests/%d", "merge_requests/%d/notes", "merge_requests/%d/notes/%d"
	case "bitbucket":
		pull, list, one = "pullrequests/%d", "pullrequests/%d/comments", "pullrequests/%d/comments/%d"
	}
	switch {
	case host == "bitbucket" && scan("commit/%s/statuses/build", &sha), host != "bitbucket" && scan("statuses/%s", &sha):
		c.setStatus(host, repo, rights, sha)
	case host == "github" && rest[0] == "compare", host == "bitbucket" && rest[0] == "merge-base":
		for _, p := range repo.pulls {
			if strings.HasSuffix(at, ".."+p.Head) {
				c.answer(http.StatusOK, map[string]any{"merge_base_commit": map[string]any{"sha": p.MergeBase}, "hash": p.MergeBase})
				return true
			}
		}
		c.refuse(host, http.StatusNotFound, "Not Found")
	case scan(pull, &n):
		if p := repo.pulls[n]; p == nil {
			c.refuse(host, http.StatusNotFound, "Not Found")
		} else {
			c.answer(http.StatusOK, c.pullRequest(host, p))
		}
	case scan(list, &n):
		c.comments(host, repo, rights, n)
	case strings.Count(one, "%d") == 2 && scan(one, &n, &id), strings.Count(one, "%d") == 1 && scan(one, &id):
		c.editComment(host, repo, rights, id)
	default:
		return false
	}
	return true
}

// states are the words of hosts for those of GitHub.
var states = map[string]map[string]string{
	"gitlab":    {"pending": "pending", "success": "success", "failed": "failure"},
	"bitbucket": {"INPROGRESS": "pending", "SUCCESSFUL": "success", "FAILED": "failure"},
}

func (c *call) setStatus(host string, repo *Repository, rights *Rights, sha string) {
	form := read[map[string]any](c)
	text := func(name string) string { s, _ := form[name].(string); return s }
	s := Status{sha, text("context"), text("state"), text("description"), text("target_url")}
	if words := states[host]; words != nil {
		s.State = words[s.State]
	}
	if host == "bitbucket" {
		s.Context, s.URL = text("name"), text("url")
	}
	last := slices.IndexFunc(repo.statuses, func(o Status) bool { return o.Commit == sha && o.Context == s.Context && o.State == s.State })
	switch {
	case c.method != http.MethodPost || s.Context == "" || !slices.Contains([]string{"pending", "success", "failure"}, s.State):
		c.refuse(host, http.StatusUnprocessableEntity, "Validation Failed")
	case rights.NoStatuses:
		c.refuse(host, http.StatusForbidden, "Resource not accessible by personal access token")
	case len(sha) != 40:
		c.refuse(host, http.StatusUnprocessableEntity, "No commit found for SHA: "+sha)
	case host == "github" && len([]rune(s.Text)) > 140:
		c.refuse(host, http.StatusUnprocessableEntity, "description is too long (maximum is 140 characters)")
	case len([]rune(s.Text)) > 255:
		c.refuse(host, http.StatusBadRequest, "description is too long (maximum is 255 characters)")
	case host == "bitbucket" && (len(text("key")) > 40 || text("key") == "" || s.URL == ""):
		c.refuse(host, http.StatusBadRequest, "key: Ensure this value has at most 40 characters; url: This field is required")
	case host == "gitlab" && last >= 0 && last == len(repo.statuses)-1:
		c.refuse(host, http.StatusBadRequest, `Cannot transition status via :enqueue from :pending`)
	default:
		repo.statuses = append(repo.statuses, s)
		c.answer(http.StatusCreated, map[string]any{"id": c.h.number(), "state": text("state")})
	}
}

func (c *call) pullRequest(host string, p *Pull) map[string]any {
	page := fmt.Sprintf("%s/pull/%d", c.h.URL, p.Number)
	other := int64(1)
	if p.Fork {
		other = 2
	}
	state := func(open, closed string) string {
		if p.Closed {
			return closed
		}
		return open
	}
	switch host {
	case "gitlab":
		return map[string]any{"iid": p.Number, "state": state("opened", "closed"), "web_url": page, "sha": p.Head, "source_branch": p.Branch,
			"target_branch": p.Base, "source_project_id": other, "target_project_id": 1, "diff_refs": map[string]any{"base_sha": p.MergeBase}}
	case "bitbucket":
		side := func(branch, commit string, id int64) map[string]any {
			return map[string]any{"branch": map[string]any{"name": branch}, "commit": map[string]any{"hash": commit[:min(12, len(commit))]},
				"repository": map[string]any{"uuid": fmt.Sprintf("{%d}", id)}}
		}
		return map[string]any{"id": p.Number, "state": state("OPEN", "MERGED"), "links": map[string]any{"html": map[string]any{"href": page}},
			"source": side(p.Branch, p.Head, other), "destination": side(p.Base, "", 1)}
	}
	side := func(branch, commit string, id int64) map[string]any {
		return map[string]any{"ref": branch, "sha": commit, "repo": map[string]any{"id": id}}
	}
	out := map[string]any{"number": p.Number, "state": state("open", "closed"), "html_url": page, "head": side(p.Branch, p.Head, other),
		"base": side(p.Base, "", 1)}
	if host == "gitea" {
		out["merge_base"] = p.MergeBase
	}
	return out
}

func (c *call) showComment(host string, m *Comment) map[string]any {
	out := map[string]any{"id": m.ID, "user": map[string]any{"login": m.Author}, "body": m.Body}
	if host == "bitbucket" {
		out["content"] = map[string]any{"raw": m.Body, "markup": "markdown"}
		delete(out, "body")
	}
	return out
}

// bodyOf reads the text of a comment.
func bodyOf(host string, form map[string]any) string {
	if content, _ := form["content"].(map[string]any); host == "bitbucket" {
		form = map[string]any{"body": content["raw"]}
	}
	s, _ := form["body"].(string)
	return s
}

func (c *call) comments(host string, repo *Repository, rights *Rights, n int64) {
	p := repo.pulls[n]
	if p == nil {
		c.refuse(host, http.StatusNotFound, "Not Found")
		return
	}
	if c.method == http.MethodGet {
		part, more := page(c, p.Comments, map[string]string{"bitbucket": "pagelen", "gitlab": "per_page", "github": "per_page"}[host])
		if host == "gitea" { // it has no pages of comments
			part, more = p.Comments, false
		}
		out := []any{}
		for _, m := range part {
			out = append(out, c.showComment(host, m))
		}
		if host == "bitbucket" {
			body := map[string]any{"values": out}
			if more {
				body["next"] = c.h.URL + c.r.URL.Path + "?page=next"
			}
			c.answer(http.StatusOK, body)
			return
		}
		c.link(more)
		c.answer(http.StatusOK, out)
		return
	}
	text := bodyOf(host, read[map[string]any](c))
	switch {
	case rights.NoComments:
		c.refuse(host, http.StatusForbidden, "Resource not accessible by personal access token")
	case text == "" || len(text) > 65536:
		c.refuse(host, http.StatusUnprocessableEntity, "Validation Failed")
	default:
		m := &Comment{ID: c.h.number(), Body: text}
		p.Comments = append(p.Comments, m)
		c.answer(http.StatusCreated, c.showComment(host, m))
	}
}

func (c *call) editComment(host string, repo *Repository, rights *Rights, id int64) {
	method := http.MethodPatch
	if host == "gitlab" || host == "bitbucket" {
		method = http.MethodPut
	}
	for _, p := range repo.pulls {
		for _, m := range p.Comments {
			switch {
			case m.ID != id:
			case rights.NoComments || m.Author != "":
				c.refuse(host, http.StatusForbidden, "Resource not accessible")
				return
			case c.method == method:
				m.Body = bodyOf(host, read[map[string]any](c))
				c.answer(http.StatusOK, c.showComment(host, m))
				return
			}
		}
	}
	c.refuse(host, http.StatusNotFound, "Not Found")
}
