package webhook

import (
	"encoding/json"
	"limpet/sync/api"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	push := func(change func(*Event)) Event {
		e := Event{Host: GitHub, Kind: Push, Name: "push", Repository: "ops/dashboards", Branches: []string{"main"}, Changes: 3}
		if change != nil {
			change(&e)
		}
		return e
	}
	pull := func(change func(*Event)) Event {
		e := Event{Host: GitHub, Kind: PullRequest, Name: "pull_request", Repository: "ops/dashboards", Branches: []string{"main"},
			Action: Opened, Number: 12,
			URL: "https://github.com/ops/dashboards/pull/12", HeadRef: "new-hall", Head: "ab5446a"}
		if change != nil {
			change(&e)
		}
		return e
	}
	const (
		increment = `{"action":"pull","pull":{"incremental":true}}`
		full      = `{"action":"pull","pull":{"incremental":false}}`
		pr        = `{"action":"pr","pr":{"hash":"ab5446a","pr":12,"ref":"new-hall","url":"https://github.com/ops/dashboards/pull/12"}}`
	)
	tests := []struct {
		name  string
		repo  func(*Repository)
		event Event
		code  int
		text  string
		job   string
	}{
		{name: "ping", event: Event{Kind: Ping}, code: 200, text: "ping received"},
		{name: "ping of another repository", event: Event{Kind: Ping, Repository: "x/y"}, code: 200, text: "ping received"},
		{name: "push", event: push(nil), code: 202, text: "push", job: increment},
		{name: "push of many files", event: push(func(e *Event) { e.Changes = 101 }), code: 202, text: "push", job: full},
		{name: "push of which not all is told", event: push(func(e *Event) { e.Partial = true }), code: 202, text: "push", job: full},
		{name: "push of many branches", event: push(func(e *Event) { e.Branches = []string{"a", "main"} }), code: 202, text: "push",
			job: increment},
		{name: "the case of a name", event: push(func(e *Event) { e.Repository = "Ops/Dashboards" }), code: 202, text: "push", job: increment},
		{name: "a host below a directory", repo: func(r *Repository) { r.URL = "https://host/git/ops/dashboards" }, event: push(nil), code: 202,
			text: "push", job: increment},
		{name: "over ssh", repo: func(r *Repository) { r.URL = "git@github.com:ops/dashboards.git" }, event: push(nil), code: 202, text: "push",
			job: increment},
		{name: "another repository", event: push(func(e *Event) { e.Repository = "ops/other" }), code: 400,
			text: "repository mismatch: the event is about ops/other"},
		{name: "the end of a name", event: push(func(e *Event) { e.Repository = "boards" }), code: 400,
			text: "repository mismatch: the event is about boards"},
		{name: "a URL that is none", repo: func(r *Repository) { r.URL = "" }, event: push(nil), code: 400,
			text: "repository mismatch: the event is about ops/dashboards"},
		{name: "another repository, sync disabled", repo: func(r *Repository) { r.Sync = false },
			event: push(func(e *Event) { e.Repository = "x/y" }), code: 400, text: "repository mismatch: the event is about x/y"},
		{name: "sync disabled", repo: func(r *Repository) { r.Sync = false }, event: push(nil), code: 200,
			text: "ignoring push event: sync is disabled"},
		{name: "suspended", repo: func(r *Repository) { r.Suspended = true }, event: push(nil), code: 200,
			text: "ignoring the event: the repository is suspended on this agent"},
		{name: "pull request while suspended", repo: func(r *Repository) { r.Suspended = true }, event: pull(nil), code: 200,
			text: "ignoring the event: the repository is suspended on this agent"},
		{name: "another branch", event: push(func(e *Event) { e.Branches = []string{"feature"} }), code: 200,
			text: "ignoring push event: it is not about the configured branch"},
		{name: "a tag", event: push(func(e *Event) { e.Branches = nil }), code: 200,
			text: "ignoring push event: it is not about the configured branch"},
		{name: "no branch known yet", repo: func(r *Repository) { r.Branch = "" }, event: push(func(e *Event) { e.Branches = []string{""} }),
			code: 200, text: "ignoring push event: it is not about the configured branch"},
		{name: "a tag, of who follows tags", repo: func(r *Repository) { r.Branch, r.Revision = "", "semver:1.x" },
			event: push(func(e *Event) { e.Branches = nil }), code: 202, text: "push", job: increment},
		{name: "pull request, of who follows tags", repo: func(r *Repository) { r.Branch, r.Revision = "", "semver:1.x" }, event: pull(nil),
			code: 200, text: "ignoring pull request event as main is not the configured branch"},
		{name: "pull request", event: pull(nil), code: 202, text: "pull request: opened", job: pr},
		{name: "pull request reopened", event: pull(func(e *Event) { e.Action = Reopened }), code: 202, text: "pull request: reopened", job: pr},
		{name: "pull request moved", event: pull(func(e *Event) { e.Action = Updated }), code: 202, text: "pull request: synchronize", job: pr},
		{name: "pull request with sync disabled", repo: func(r *Repository) { r.Sync = false }, event: pull(nil), code: 202,
			text: "pull request: opened", job: pr},
		{name: "pull request closed", event: pull(func(e *Event) { e.Action = "closed" }), code: 200, text: "ignore pull request event: closed"},
		{name: "pull request to another branch", event: pull(func(e *Event) { e.Branches = []string{"develop"} }), code: 200,
			text: "ignoring pull request event as develop is not the configured branch"},
		{name: "pull request of another repository", event: pull(func(e *Event) { e.Repository = "x/y" }), code: 400,
			text: "repository mismatch: the event is about x/y"},
		{name: "another event", event: Event{Kind: Other, Name: "issue_comment"}, code: 501, text: "unsupported event: issue_comment"},
	}
	for _, tt := range tests {
		repo := &Repository{URL: "https://github.com/ops/dashboards.git", Branch: "main", Sync: true}
		if tt.repo != nil {
			tt.repo(repo)
		}
		v := Decide(repo, tt.event, Listed(100))
		job := ""
		if v.Job != nil {
			data, err := json.Marshal(v.Job)
			if err != nil {
				t.Fatal(err)
			}
			job = string(data)
		}
		if v.Code != tt.code || v.Message != tt.text || job != tt.job {
			t.Errorf("%s: %d %q %s\nwant %d %q %s", tt.name, v.Code, v.Message, job, tt.code, tt.text, tt.job)
		}
	}
}

func TestRepositoryOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, object string
		given        bool
		code         int
		why          string
	}{
		{name: "with a hook", object: `{"status":{"webhook":{"id":7,"lastEvent":1772442725000},"health":{"healthy":true,"checked":1}}}`},
		{name: "not looked at yet", object: `{"status":{"webhook":{"id":7}}}`},
		{name: "no hook", object: `{"status":{"webhook":null}}`, code: 400, why: "unexpected webhook request"},
		{name: "no status", object: `{}`, code: 400, why: "unexpected webhook request"},
		{name: "a person has given the secret", object: `{}`, given: true},
		{name: "disabled", object: `{"spec":{"webhook":{"disabled":true}},"status":{"webhook":{"id":7}}}`, given: true, code: 400,
			why: "webhook integration is disabled for this repository"},
		{name: "unhealthy", object: `{"status":{"webhook":{"id":7},"health":{"healthy":false,"checked":1,"message":["no such branch"]}}}`,
			code: 424, why: "the repository is not healthy: no such branch"},
		{name: "unhealthy without a word", object: `{"status":{"webhook":{"id":7},"health":{"healthy":false,"checked":1}}}`, code: 424,
			why: "the repository is not healthy"},
		{name: "going", object: `{"metadata":{"deletionTimestamp":"2026-03-02T10:00:00Z"},"status":{"webhook":{"id":7}}}`, code: 409,
			why: "the repository is being deleted"},
	}
	for _, tt := range tests {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository",`+tt.object[1:]),
			&u.Object); err != nil {
			// an empty object leaves a comma behind
			if err = json.Unmarshal([]byte(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository"}`), &u.Object); err != nil {
				t.Fatal(err)
			}
		}
		view, err := api.RepositoryView(u)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		r := repositoryOf(u, view)
		r.Given = tt.given
		if code, why := r.refusal(); code != tt.code || why != tt.why {
			t.Errorf("%s: %d %q, want %d %q", tt.name, code, why, tt.code, tt.why)
		}
	}
}

// TestPushWithRevision: a push to the branch of the spec is none to what
// is pulled.
func TestPushWithRevision(t *testing.T) {
	t.Parallel()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
		"metadata": map[string]any{"annotations": map[string]any{"limpet/git-ref": "tag:v1"}},
		"spec":     map[string]any{"type": "git", "git": map[string]any{"url": "https://h/a", "branch": "main"}}}}
	view, err := api.RepositoryView(u)
	if r := repositoryOf(u, view); err != nil || r.Branch != "" || r.Revision != "tag:v1" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestListed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		most int
		push Event
		want bool
	}{
		{name: "no deletions", push: Event{Changes: 3}, want: true},
		{name: "a file", push: Event{Deleted: []string{"a/x.json"}, Changes: 1}, want: true},
		{name: "the marker of a directory", push: Event{Deleted: []string{"a/.keep"}, Changes: 1}},
		{name: "the metadata of a directory", push: Event{Deleted: []string{"a/_folder.json"}, Changes: 1}},
		{name: "the marker with a file beside it", push: Event{Deleted: []string{"a/.keep", "a/x.json"}, Changes: 2}, want: true},
		{name: "the marker with a file below it", push: Event{Deleted: []string{"a/.keep", "a/b/x.json"}, Changes: 2}},
		{name: "one of two markers stands alone", push: Event{Deleted: []string{"a/.keep", "a/x.json", "b/.keep"}, Changes: 3}},
		{name: "the marker of the root", push: Event{Deleted: []string{".keep"}, Changes: 1}},
		{name: "as many as allowed", most: 3, push: Event{Changes: 3}, want: true},
		{name: "too many", most: 3, push: Event{Changes: 4}},
		{name: "not all is told", push: Event{Changes: 1, Partial: true}},
	}
	for _, tt := range tests {
		if got := Listed(tt.most)(tt.push); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
