package forge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"limpet/sync/netx"
	"limpet/sync/testenv/forgetest"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func TestSetStatus(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, h *forgetest.Host, kind Kind, path string) {
		ctx, r := t.Context(), remoteOf(t, h, kind, path)
		long := CommitStatus{Context: "limpet/" + strings.Repeat("n", 60) + "/site", State: CommitFailure, Text: strings.Repeat("ä", 200)}
		for _, s := range []CommitStatus{
			{"limpet/default/site", CommitPending, "sync has begun", "https://grafana.example/admin"},
			{"limpet/default/site", CommitPending, "again", ""},
			{"limpet/default/site", CommitSuccess, "3 created", ""}, long,
		} {
			if err := r.SetStatus(ctx, commit, s); err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
		}
		var got []string
		for _, s := range h.Statuses(path) {
			got = append(got, s.State+" "+s.Text)
			if len(s.Text) > r.statusText || s.Commit != commit {
				t.Errorf("%+v", s)
			}
		}
		want := 4
		if kind == GitLab { // it takes a state once
			want = 3
		}
		if len(got) != want || got[0] != "pending sync has begun" || !strings.HasSuffix(got[want-1], "…") {
			t.Errorf("%q", got)
		}
		if s := h.Statuses(path)[0]; s.URL != "https://grafana.example/admin" || s.Context != "limpet/default/site" {
			t.Errorf("%+v", s)
		}
		h.Token(canary+"-token", forgetest.Rights{NoStatuses: true})
		if err := r.SetStatus(ctx, commit, long); netx.KindOf(err) != netx.Forbidden || !Refuses(err) {
			t.Errorf("without the right: %v", err)
		}
		h.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 502} })
		if err := r.SetStatus(ctx, commit, long); err == nil || Refuses(err) {
			t.Errorf("a host that is down: %v", err)
		}
	})
}

// TestComment: one comment is made and edited in place, also when it is on the second page, and
// that of another author is left alone.
func TestComment(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, h *forgetest.Host, kind Kind, path string) {
		ctx, r := t.Context(), remoteOf(t, h, kind, path)
		h.SetPull(path, forgetest.Pull{Number: 7, Branch: "work", Head: commit, Base: "main"})
		if p, err := r.PullRequest(ctx, 7); err != nil || !p.Open || p.Fork || p.Branch != "work" || p.Base != "main" ||
			!strings.HasPrefix(commit, p.Head) || p.Head == "" || !strings.HasSuffix(p.URL, "/pull/7") {
			t.Errorf("%+v, %v", p, err)
		}
		for i := range 60 {
			h.AddComment(path, 7, "ann", fmt.Sprint("looks good ", i))
		}
		h.AddComment(path, 7, "mallory", fmt.Sprintf(r.marker, "limpet/default/site")+"\n\nforged")
		h.AddComment(path, 7, "ann", "I quote "+fmt.Sprintf(r.marker, "limpet/default/site"))
		say := func(text string, onlyEdit bool) {
			t.Helper()
			if err := r.Comment(ctx, 7, "limpet/default/site", text, onlyEdit); err != nil {
				t.Fatal(err)
			}
		}
		own := func() (out []string) {
			for _, c := range h.Comments(path, 7) {
				if c.Author == "" {
					out = append(out, c.Body)
				}
			}
			return out
		}
		say("nothing to say", true)
		if got := own(); len(got) != 0 {
			t.Errorf("made: %q", got)
		}
		say("first", false)
		say("second", false)
		if got := own(); len(got) != 1 || !strings.HasSuffix(got[0], "\n\nsecond") {
			t.Errorf("%q", got)
		}
		h.Requests()
		say("second", false)
		for _, call := range h.Requests() {
			if !strings.HasPrefix(call, "GET ") {
				t.Errorf("the same text: %s", call)
			}
		}
		h.SetPull(path, forgetest.Pull{Number: 8, Branch: "work", Head: commit, Base: "main", Fork: true, Closed: true})
		if p, err := r.PullRequest(ctx, 8); err != nil || p.Open || !p.Fork {
			t.Errorf("%+v, %v", p, err)
		}
		if _, err := r.PullRequest(ctx, 9); netx.KindOf(err) != netx.NotFound {
			t.Errorf("no such pull request: %v", err)
		}
	})
}
