package repos

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/testenv/forgetest"
)

// TestHookSteps: how an attempt at a webhook ends, by what the token may do.
func TestHookSteps(t *testing.T) {
	t.Parallel()
	const url = "https://limpet.example.com/hook"
	host := forgetest.New(t, forgetest.Options{Speaks: []string{"gitlab"}})
	host.Add("team/site", forgetest.Repository{})
	host.Token("manages", forgetest.Rights{Hooks: true})
	host.Token("reads", forgetest.Rights{})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	defer hosts.Close()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := newController(nil, nil, nothing{}, nothing{}, Options{Logger: slog.New(slog.DiscardHandler), Hooks: &Hooks{Store: store,
		Registry: func(ctx context.Context, _ *unstructured.Unstructured, creds *auth.Credentials) (Registry, error) {
			return hosts.Remote(ctx, forge.Target{Type: "gitlab", URL: host.URL + "/team/site"}, creds)
		}}})
	id := host.AddHook("team/site", forgetest.Hook{URL: url, Events: []string{"push_events", "merge_requests_events"}})
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	there := &api.WebhookStatus{ID: number, URL: url, LastRotated: at.UnixMilli(), LastEvent: 7}
	aged := &api.WebhookStatus{ID: number, URL: url, LastRotated: ago(31 * 24 * time.Hour), LastEvent: 7}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, s := range []struct {
		what, token, want string
		ctx               context.Context
		has               *api.WebhookStatus
		changed           bool
		rest              time.Duration
		event             int64 // lastEvent in the new status
	}{
		{"all is well", "manages", url, t.Context(), there, false, 0, 0},
		{"a new secret keeps what is known", "manages", url, t.Context(), aged, true, 0, 7},
		{"the right is missing", "reads", url, t.Context(), aged, false, refusedCooldown, 0},
		{"the token is gone", "revoked", url, t.Context(), aged, false, refusedCooldown, 0},
		{"the agent stops", "manages", url, ended, aged, false, 0, 0},
		{"removal without the right", "reads", "", t.Context(), there, false, refusedCooldown, 0},
		{"removal without a token", "revoked", "", t.Context(), there, true, 0, 0},
		{"removal", "manages", "", t.Context(), there, true, 0, 0},
		{"again", "manages", "", t.Context(), there, true, 0, 0},
	} {
		r := &reconciling{Controller: c, key: Key{"ns", "site"}, note: &note{}, hookURL: s.want, obj: &unstructured.Unstructured{Object: map[string]any{}}}
		r.facts.now, r.facts.repo.Status.Webhook = at, s.has
		r.probe = &probe{remote: git.Remote{Creds: &auth.Credentials{Username: "oauth2", Password: s.token}}}
		status, changed := r.hook(s.ctx)
		rest := r.note.hookRest(at)
		event, _ := status["lastEvent"].(int64)
		if changed != s.changed || rest != s.rest || event != s.event || (status != nil) != (s.changed && s.want != "") {
			t.Errorf("%s: %v %t, rest %s", s.what, status, changed, rest)
		}
	}
	if left := host.Hooks("team/site"); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	// One that cannot be reached is asked again soon.
	host.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 502} })
	r := &reconciling{Controller: c, key: Key{"ns", "site"}, note: &note{}, hookURL: url, obj: &unstructured.Unstructured{Object: map[string]any{}}}
	r.facts.now, r.probe = at, &probe{remote: git.Remote{Creds: &auth.Credentials{Username: "oauth2", Password: "manages"}}}
	if _, changed := r.hook(t.Context()); changed || r.note.hookRest(at) != hookCooldown {
		t.Errorf("changed %t, rest %s", changed, r.note.hookRest(at))
	}
}

// TestHookOfAMovedRepository: the webhook of a repository that has moved is owed
// until its host has it, whatever ends in between, and not a second time.
func TestHookOfAMovedRepository(t *testing.T) {
	t.Parallel()
	host := forgetest.New(t, forgetest.Options{Speaks: []string{"gitlab"}})
	host.Token("manages", forgetest.Rights{Hooks: true})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	defer hosts.Close()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	k := Key{"ns", "site"}
	var has *api.WebhookStatus
	look := func(path string) trigger { // of an agent that has just been started
		target := forge.Target{Type: "gitlab", URL: host.URL + "/" + path}
		c := newController(nil, nil, nothing{}, nothing{}, Options{Logger: slog.New(slog.DiscardHandler), Hooks: &Hooks{Base: "https://limpet.example.com", Store: store,
			Registry: func(ctx context.Context, _ *unstructured.Unstructured, creds *auth.Credentials) (Registry, error) {
				return hosts.Remote(ctx, target, creds)
			}}})
		r := &reconciling{Controller: c, key: k, note: &note{}, obj: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": "1"}}}}
		r.facts.now, r.facts.generation = at, 1
		r.facts.repo.Status.ObservedGeneration, r.facts.repo.Status.Webhook = 1, has
		r.facts.repo.Spec.Type, r.facts.repo.Spec.Workflows = "gitlab", []string{"write"}
		r.facts.repo.Spec.GitLab = &api.GitBlock{URL: target.URL}
		r.gatherHook(t.Context())
		if r.hookDue != "" {
			r.probe = &probe{remote: git.Remote{Creds: &auth.Credentials{Username: "oauth2", Password: "manages"}}}
			if status, _ := r.hook(t.Context()); status != nil {
				id, _ := status["id"].(int64)
				has = &api.WebhookStatus{ID: id, URL: r.hookURL, LastRotated: at.UnixMilli()}
			}
		}
		return r.hookDue
	}
	host.Add("team/site", forgetest.Repository{})
	host.Add("team/other", forgetest.Repository{})
	for i, s := range []struct {
		path string
		due  trigger
		all  int // webhooks of team/other
	}{{"team/site", webhookMissing, 0}, {"team/site", "", 0}, {"team/other", specChanged, 1}, {"team/other", "", 1}} {
		if due := look(s.path); due != s.due || len(host.Hooks("team/other")) != s.all {
			t.Errorf("%d: %q is due at %s, want %q; %d hooks there", i, due, s.path, s.due, len(host.Hooks("team/other")))
		}
	}
	if err := store.DeleteFact(t.Context(), HookedKey(k)); err != nil {
		t.Fatal(err)
	}
	if first, second := look("team/other"), look("team/other"); first != specChanged || second != "" {
		t.Errorf("what is not known is looked at once: %q, %q", first, second)
	}
}

// TestHookOfTheUnhealthy: no webhook is made for a Repository that is not in order,
// also when its remote has answered.
func TestHookOfTheUnhealthy(t *testing.T) {
	t.Parallel()
	for _, healthy := range []bool{true, false} {
		asked := false
		c := newController(unwilling{}, time.Now, nothing{}, nothing{}, Options{Logger: slog.New(slog.DiscardHandler), Hooks: &Hooks{
			Registry: func(context.Context, *unstructured.Unstructured, *auth.Credentials) (Registry, error) {
				asked = true
				return nil, forge.ErrNone
			}}})
		r := &reconciling{Controller: c, key: Key{"ns", "site"}, note: &note{}, obj: &unstructured.Unstructured{Object: map[string]any{}}, hookURL: "https://limpet.example.com/hook", hookDue: webhookMissing}
		r.facts.now, r.probe = at, &probe{asked: true}
		if err := r.write(t.Context(), false, finding{}, healthy, nil); !errors.Is(err, errMoved) || asked != healthy {
			t.Errorf("healthy %t: the host was asked: %t, %v", healthy, asked, err)
		}
	}
}

// unwilling takes no patch.
type unwilling struct{ server }

func (unwilling) patch(context.Context, Key, bool, []op) (*unstructured.Unstructured, error) {
	return nil, errMoved
}
