package repos

import (
	"context"
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
	c := newController(nil, nil, nothing{}, nothing{}, Options{Logger: slog.New(slog.DiscardHandler), Webhooks: true, Store: store,
		Hosts: hostFunc(func(ctx context.Context, _ *unstructured.Unstructured, creds *auth.Credentials) (Host, error) {
			return hosts.Remote(ctx, forge.Target{Type: "gitlab", URL: host.URL + "/team/site"}, creds)
		})})
	c.now = func() time.Time { return at }
	try := func(ctx context.Context, url, token string, has *api.WebhookStatus) *attempt {
		a := &attempt{key: Key{"ns", "site"}, memory: &memory{}, obj: &unstructured.Unstructured{Object: map[string]any{}}, healthy: true}
		a.webhook = webhookPlan{url: url, due: triggerSpec}
		a.facts.repo.Status.Webhook = has
		a.probe = &probe{remote: git.Remote{Creds: &auth.Credentials{Username: "oauth2", Password: token}}}
		if _, err := c.registerWebhook(ctx, a); err != nil {
			t.Fatal(err)
		}
		return a
	}
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
		a := try(s.ctx, s.want, s.token, s.has)
		rest := a.memory.webhookPause(at)
		var status map[string]any
		changed := len(a.change.ops) > 0
		if changed {
			status, _ = a.change.ops[0].Value.(map[string]any)
		}
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
	if a := try(t.Context(), url, "manages", nil); len(a.change.ops) > 0 || a.memory.webhookPause(at) != webhookCooldown {
		t.Errorf("%v, rest %s", a.change.ops, a.memory.webhookPause(at))
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
		c := newController(nil, nil, nothing{}, nothing{}, Options{Logger: slog.New(slog.DiscardHandler), Webhooks: true, WebhookBase: "https://limpet.example.com", Store: store,
			Hosts: hostFunc(func(ctx context.Context, _ *unstructured.Unstructured, creds *auth.Credentials) (Host, error) {
				return hosts.Remote(ctx, target, creds)
			})})
		c.now = func() time.Time { return at }
		r := &attempt{key: k, memory: &memory{}, healthy: true, obj: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": "1"}}}}
		r.facts.now, r.facts.generation = at, 1
		r.facts.repo.Status.ObservedGeneration, r.facts.repo.Status.Webhook = 1, has
		r.facts.repo.Spec.Type, r.facts.repo.Spec.Workflows = "gitlab", []string{"write"}
		r.facts.repo.Spec.GitLab = &api.GitBlock{URL: target.URL}
		r.webhook = c.planWebhook(t.Context(), r)
		r.probe = &probe{remote: git.Remote{Creds: &auth.Credentials{Username: "oauth2", Password: "manages"}}}
		if _, err := c.registerWebhook(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if len(r.change.ops) > 0 {
			id, _ := r.change.ops[0].Value.(map[string]any)["id"].(int64)
			has = &api.WebhookStatus{ID: id, URL: r.webhook.url, LastRotated: at.UnixMilli()}
		}
		return r.webhook.due
	}
	host.Add("team/site", forgetest.Repository{})
	host.Add("team/other", forgetest.Repository{})
	for i, s := range []struct {
		path string
		due  trigger
		all  int // webhooks of team/other
	}{{"team/site", triggerWebhookMissing, 0}, {"team/site", "", 0}, {"team/other", triggerSpec, 1}, {"team/other", "", 1}} {
		if due := look(s.path); due != s.due || len(host.Hooks("team/other")) != s.all {
			t.Errorf("%d: %q is due at %s, want %q; %d hooks there", i, due, s.path, s.due, len(host.Hooks("team/other")))
		}
	}
	if err := store.DeleteFact(t.Context(), WebhookSumKey(k)); err != nil {
		t.Fatal(err)
	}
	if first, second := look("team/other"), look("team/other"); first != triggerSpec || second != "" {
		t.Errorf("what is not known is looked at once: %q, %q", first, second)
	}
}

// TestHookOfTheUnhealthy: no webhook is made for a Repository that is not in order,
// also when its remote has answered.
func TestHookOfTheUnhealthy(t *testing.T) {
	t.Parallel()
	for _, healthy := range []bool{true, false} {
		asked := false
		c := newController(unwilling{}, time.Now, nothing{}, nothing{}, Options{Logger: slog.New(slog.DiscardHandler), Webhooks: true,
			Hosts: hostFunc(func(context.Context, *unstructured.Unstructured, *auth.Credentials) (Host, error) {
				asked = true
				return nil, forge.ErrNone
			})})
		a := &attempt{key: Key{"ns", "site"}, memory: &memory{}, obj: &unstructured.Unstructured{Object: map[string]any{}}, healthy: healthy, probe: &probe{asked: true}}
		a.webhook = webhookPlan{url: "https://limpet.example.com/hook", due: triggerWebhookMissing}
		if _, err := c.registerWebhook(t.Context(), a); err != nil || asked != healthy {
			t.Errorf("healthy %t: the host was asked: %t, %v", healthy, asked, err)
		}
	}
}

// unwilling takes no patch.
type unwilling struct{ server }

func (unwilling) patch(context.Context, Key, bool, []op) (*unstructured.Unstructured, error) {
	return nil, errConflict
}
