package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"limpet/sync/auth"
	"limpet/sync/netx"
	"limpet/sync/testenv/forgetest"
)

const (
	canary  = "s3cret-CANARY"
	hookURL = "https://site.example/apis/provisioning.grafana.app/v0alpha1/namespaces/default/repositories/site/webhook"
)

// creds are those that the fake knows.
func creds() *auth.Credentials {
	return &auth.Credentials{Username: "git", Password: canary + "-token", Source: "secret default/site"}
}

// remoteOf makes a repository of a kind at a fake host.
func remoteOf(t testing.TB, h *forgetest.Host, kind Kind, path string) *Remote {
	t.Helper()
	address := strings.TrimPrefix(h.URL, "http://")
	target := Target{Type: string(kind), URL: h.URL + "/" + path}
	o := Options{AllowInsecure: true}
	switch kind {
	case Gitea:
		target.Type = "git"
	case GitHubEnterprise:
		target.ServerURL = h.URL
	case Bitbucket:
		o.APIs = map[string]string{address: h.URL + "/2.0"}
	}
	hosts := New(o)
	t.Cleanup(hosts.Close)
	r, err := hosts.Remote(t.Context(), target, creds())
	if err != nil {
		t.Fatal(err)
	}
	if r.Kind() != kind || r.Name() != path {
		t.Fatalf("%s %s, want %s %s", r.Kind(), r.Name(), kind, path)
	}
	return r
}

// facts makes a plain call about a repository.
func facts(ctx context.Context, r *Remote) (struct{ Name string }, error) {
	f, err := ask[struct {
		Name string `json:"full_name"`
	}](ctx, r.caller, r.request("read repository", http.MethodGet, ""))
	return struct{ Name string }{f.Name}, err
}

var paths = map[Kind]string{GitHub: "team/site", GitHubEnterprise: "team/site", GitLab: "group/sub/site", Bitbucket: "work/site",
	Gitea: "team/site"}

// everyKind runs a test against each kind of host.
func everyKind(t *testing.T, test func(t *testing.T, h *forgetest.Host, kind Kind, path string)) {
	for kind, path := range paths {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			h := forgetest.New(t, forgetest.Options{})
			h.Add(path, forgetest.Repository{DefaultBranch: "main", Protected: map[string]string{"kept": "locked", "release/1": "reviews"}})
			h.Token(canary+"-token", forgetest.Rights{Hooks: true, Admin: true})
			test(t, h, kind, path)
		})
	}
}

func TestHookLife(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, h *forgetest.Host, kind Kind, path string) {
		ctx, r := t.Context(), remoteOf(t, h, kind, path)
		if found, err := r.Find(ctx, hookURL); err != nil || found != nil {
			t.Fatalf("%v %v in an empty list", found, err)
		}
		want := Hook{URL: hookURL, Events: r.Events(), Secret: canary + "-1"}
		made, err := r.Create(ctx, want)
		if err != nil {
			t.Fatal(err)
		}
		if !want.Same(made) || made.ID == "" || made.Secret != "" || (made.Number() == 0) != (kind == Bitbucket) {
			t.Fatalf("made %+v", made)
		}
		one := func(secret, url string) {
			t.Helper()
			kept := h.Hooks(path)
			if len(kept) != 1 || kept[0].Secret != secret || kept[0].URL != url || kept[0].Inactive || kept[0].ContentType != "json" ||
				kept[0].InsecureTLS {
				t.Fatalf("the host has %+v, want one with secret %q", kept, secret)
			}
		}
		one(canary+"-1", hookURL)
		if got, err := r.Get(ctx, made.ID); err != nil || got == nil || !want.Same(*got) {
			t.Fatalf("read back %+v %v", got, err)
		}

		// Rotation, and a new address.
		want.ID, want.Secret, want.URL = made.ID, canary+"-2", hookURL+"2"
		edited, err := r.Edit(ctx, want)
		if err != nil || edited.ID != made.ID || !want.Same(edited) {
			t.Fatalf("edited %+v %v", edited, err)
		}
		one(canary+"-2", hookURL+"2")

		// The state was lost: the hook is found by its address.
		adopted, err := r.Create(ctx, Hook{URL: hookURL + "2/", Secret: canary + "-3"})
		if err != nil || adopted.ID != made.ID || !slices.Equal(sorted(adopted.Events), sorted(r.Events())) {
			t.Fatalf("adopted %+v %v", adopted, err)
		}
		one(canary+"-3", hookURL+"2/")

		for range 2 {
			if err := r.Delete(ctx, made.ID); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := r.Get(ctx, made.ID); err != nil || got != nil {
			t.Fatalf("%v %v after it was deleted", got, err)
		}
		if _, err := r.Edit(ctx, want); netx.KindOf(err) != netx.NotFound {
			t.Fatalf("editing what is gone: %v", err)
		}
		if len(h.Hooks(path)) != 0 {
			t.Fatal("a hook is left")
		}
	})
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// TestCreateAdoptsForeignHook adopts a webhook with our address that was created by
// hand, with other events, inactive and as a form, behind more than one page.
func TestCreateAdoptsForeignHook(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, h *forgetest.Host, kind Kind, path string) {
		events := map[Kind][]string{GitLab: {"issues_events", "push_events"}, Bitbucket: {"repo:push", "repo:fork"}}[kind]
		if events == nil {
			events = []string{"release"}
		}
		for n := range 120 {
			h.AddHook(path, forgetest.Hook{URL: fmt.Sprintf("https://other.example/%d", n), Events: events, ContentType: "json"})
		}
		id := h.AddHook(path, forgetest.Hook{URL: hookURL, Events: events, ContentType: "form", Inactive: kind != GitLab,
			InsecureTLS: kind != Gitea})
		r := remoteOf(t, h, kind, path)
		all, err := r.List(t.Context())
		if err != nil || len(all) != 121 {
			t.Fatalf("%d hooks of 121: %v", len(all), err)
		}
		want := Hook{URL: hookURL, Events: r.Events(), Secret: canary}
		if found, err := r.Find(t.Context(), hookURL); err != nil || found == nil || found.ID != id || want.Same(*found) {
			t.Fatalf("found %+v %v", found, err)
		}
		got, err := r.Create(t.Context(), want)
		if err != nil || got.ID != id || !want.Same(got) {
			t.Fatalf("adopted %+v %v", got, err)
		}
		kept := h.Hooks(path)
		if last := kept[len(kept)-1]; len(kept) != 121 || last.Secret != canary || last.InsecureTLS || last.ContentType != "json" {
			t.Fatalf("%d hooks, the adopted one is %+v", len(kept), last)
		}
	})
}

// TestCreateAfterHookDeleted creates a webhook when only the ID of a deleted one is
// known.
func TestCreateAfterHookDeleted(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, h *forgetest.Host, kind Kind, path string) {
		r, before := remoteOf(t, h, kind, path), len(h.Hooks(path))
		made, err := r.Create(t.Context(), Hook{ID: "4711", URL: hookURL, Secret: canary})
		if err != nil || made.ID == "4711" || len(h.Hooks(path)) != before+1 {
			t.Fatalf("%+v %v", made, err)
		}
	})
}

// TestHookRace: another agent makes the hook between the list and the create.
func TestHookRace(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{})
	h.Add("team/site", forgetest.Repository{})
	h.Token(canary+"-token", forgetest.Rights{Hooks: true})
	lists := 0
	h.Fault(func(r *http.Request) *forgetest.Answer {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/hooks") {
			return nil
		}
		if lists++; lists == 1 {
			h.AddHook("team/site", forgetest.Hook{URL: hookURL, Events: []string{"push"}})
			return &forgetest.Answer{Status: 200, Body: "[]"}
		}
		return nil
	})
	r := remoteOf(t, h, GitHub, "team/site")
	made, err := r.Create(t.Context(), Hook{URL: hookURL, Secret: canary})
	if err != nil || len(h.Hooks("team/site")) != 1 || !(Hook{URL: hookURL, Events: r.Events()}).Same(made) {
		t.Fatalf("%+v %v, the host has %+v", made, err, h.Hooks("team/site"))
	}
	// What is refused for another reason stays refused, and the secret is not repeated.
	if _, err := r.Create(t.Context(), Hook{URL: "ftp://site.example/" + canary, Secret: "x"}); netx.KindOf(err) != netx.Refused ||
		strings.Contains(err.Error(), "CANARY") {
		t.Fatalf("%v", err)
	}
}

func TestProtection(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, h *forgetest.Host, kind Kind, path string) {
		r := remoteOf(t, h, kind, path)
		want := map[string]Protection{"main": Unprotected, "kept": Locked, "release/1": ReviewsRequired}
		switch kind {
		case Bitbucket:
			want = map[string]Protection{"main": ProtectionUnknown}
		case GitLab:
			want["release/1"] = Locked // it knows only whether this identity may push
		}
		for branch, p := range want {
			if got, err := r.Protection(t.Context(), branch); err != nil || got != p {
				t.Errorf("branch %s is %s (%v), want %s", branch, got, err, p)
			}
		}
		for _, status := range []int{403, 404, 500, 502} {
			h.Fault(func(*http.Request) *forgetest.Answer {
				return &forgetest.Answer{Status: status, Body: `{"message":"Not Found"}`}
			})
			if got, err := r.Protection(t.Context(), "main"); err != nil || got != ProtectionUnknown {
				t.Errorf("after %d the branch is %s: %v", status, got, err)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := r.Protection(ended, "main"); kind != Bitbucket && netx.KindOf(err) != netx.Cancelled {
			t.Errorf("after the context has ended: %v", err)
		}
	})
}

func TestMissingRight(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, h *forgetest.Host, kind Kind, path string) {
		h.Token(canary+"-token", forgetest.Rights{})
		r := remoteOf(t, h, kind, path)
		if _, err := r.List(t.Context()); netx.KindOf(err) != netx.Forbidden {
			t.Errorf("list: %v", err)
		}
		if _, err := r.Create(t.Context(), Hook{URL: hookURL, Secret: canary}); netx.KindOf(err) != netx.Forbidden {
			t.Errorf("create: %v", err)
		}
		h.Revoke(canary + "-token")
		if _, err := r.Find(t.Context(), hookURL); netx.KindOf(err) != netx.Unauthorized || !strings.Contains(err.Error(), "secret default/site") {
			t.Errorf("with a token that is gone: %v", err)
		}
	})
}

func TestSame(t *testing.T) {
	t.Parallel()
	want := Hook{URL: "https://Site.example:443/a", Events: []string{"push", "pull_request"}}
	cases := []struct {
		other Hook
		same  bool
	}{
		{Hook{URL: "https://site.example/a/", Events: []string{"pull_request", "push"}, Active: true}, true},
		{Hook{URL: "https://site.example/a", Events: []string{"push", "pull_request"}}, false},
		{Hook{URL: "https://site.example/A", Events: []string{"push", "pull_request"}, Active: true}, false},
		{Hook{URL: "http://site.example/a", Events: []string{"push", "pull_request"}, Active: true}, false},
		{Hook{URL: "https://site.example/a", Events: []string{"push"}, Active: true}, false},
		{Hook{URL: "https://site.example/a", Events: []string{"push", "pull_request", "issues"}, Active: true}, false},
	}
	for _, c := range cases {
		if want.Same(c.other) != c.same {
			t.Errorf("%+v: same is %v", c.other, !c.same)
		}
	}
	js, err := json.Marshal(Hook{Secret: canary})
	if err != nil {
		t.Fatal(err)
	}
	if out := fmt.Sprintf("%v %+v %#v %x %q %s", Hook{Secret: canary}, Hook{Secret: canary}, Hook{Secret: canary}, Secret(canary),
		Secret(canary), js); strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) {
		t.Errorf("a secret was printed: %s", out)
	}
}
