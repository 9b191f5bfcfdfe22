package repos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/netx"
	"limpet/sync/reconcile"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/worker/checkout"
)

func TestWebhookIsDue(t *testing.T) {
	t.Parallel()
	const url = "https://limpet.example.com/hook"
	there := &api.WebhookStatus{ID: 1, URL: url, LastRotated: ago(time.Hour)}
	aged := &api.WebhookStatus{UUID: "{u}", URL: url, LastRotated: ago(31 * 24 * time.Hour)}
	for _, c := range []struct {
		rule string
		want string
		has  *api.WebhookStatus
		seen bool // since the spec has changed
		due  string
	}{
		{"none wanted, none there", "", nil, false, ""},
		{"no webhook id", url, nil, true, "webhook_missing"},
		{"an empty status is none", url, &api.WebhookStatus{LastEvent: 7}, true, "webhook_missing"},
		{"all is well", url, there, true, ""},
		{"the spec is another", url, there, false, "spec_changed"},
		{"the address is another", url + "s", there, true, "spec_changed"},
		{"new secret after 30 days", url, aged, true, "webhook_secret_rotation"},
		{"disabled, or workflows emptied", "", there, true, "spec_changed"},
	} {
		if got := webhookDue(c.want, c.has, c.seen, at); got != c.due {
			t.Errorf("%s: %q, want %q", c.rule, got, c.due)
		}
	}
}

func TestWebhookURL(t *testing.T) {
	t.Parallel()
	const path = "/apis/provisioning.grafana.app/v0alpha1/namespaces/ns/repositories/site/webhook"
	for _, c := range []struct {
		rule, base, own, kind string
		workflows             []string
		disabled              bool
		want                  string
		known                 bool
	}{
		{"the agent's", "https://a.example/", "", "git", []string{"write"}, false, "https://a.example" + path, true},
		{"the repository's own", "https://a.example", "https://b.example/x", "git", []string{"write"}, false, "https://b.example/x" + path, true},
		{"the repository's own alone", "", "https://b.example/x", "git", []string{"write"}, false, "https://b.example/x" + path, true},
		{"no address is known", "", "", "git", []string{"write"}, false, path, false},
		{"read-only repositories get none", "", "", "git", nil, false, "", true},
		{"disabled", "", "", "git", []string{"write"}, true, "", true},
		{"a local directory", "https://a.example", "", "local", []string{"write"}, false, "", true},
	} {
		var repo api.Repository
		repo.Spec.Type, repo.Spec.Workflows = c.kind, c.workflows
		repo.Spec.Webhook = &struct {
			BaseURL  string `json:"baseUrl,omitempty"`
			Disabled bool   `json:"disabled,omitempty"`
		}{c.own, c.disabled}
		if got, known := webhookURL(c.base, reconcile.Key{Namespace: "ns", Name: "site"}, repo); got != c.want || known != c.known {
			t.Errorf("%s: %q %t, want %q %t", c.rule, got, known, c.want, c.known)
		}
	}
}

// newWebhookRig is a controller that registers webhooks, with a Repository at a host of
// GitLab's kind. The token has no rights at first.
func newWebhookRig(t *testing.T, token string) (*rig, *forgetest.Host) {
	t.Helper()
	return newWebhookRigAt(t, token, "https://limpet.example.com")
}

func newWebhookRigAt(t *testing.T, token, base string) (*rig, *forgetest.Host) {
	t.Helper()
	host := forgetest.New(t, forgetest.Options{Speaks: []string{"gitlab"}})
	host.Add("team/site", forgetest.Repository{DefaultBranch: "main"})
	host.Token(token, forgetest.Rights{})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		r.creds.Store(&auth.Credentials{Username: "oauth2", Password: token})
		o.Webhooks, o.WebhookBase, o.Store = true, base, r.store
		o.Hosts = Forges(hosts)
	})
	host.Behind(r.git)
	r.git.Serve("team/site.git", r.repo.Dir)
	r.repo.Add(t, "a.json")
	r.create(map[string]any{"type": "gitlab", "git": nil, "workflows": []any{"write"}, "sync": map[string]any{"enabled": false},
		"gitlab": map[string]any{"url": host.URL + "/team/site", "branch": "main"}}, nil)
	return r, host
}

// webhookSecrets are the secrets that are kept for the webhook of the Repository.
func (r *rig) webhookSecrets() []string {
	r.t.Helper()
	kept, err := r.store.Secret(r.t.Context(), WebhookSecretKey(reconcile.Key{Namespace: r.namespace, Name: "site"}))
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Fields(string(kept))
}

// TestWebhook goes with a webhook from its registration over a new secret to its
// removal. A token that may not register one costs nothing but the webhook.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const token = "glpat-of-the-repository"
	r, host := newWebhookRig(t, token)
	repo := r.until("it is healthy without a webhook", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	if !repo.Status.Health.Healthy || repo.Status.Webhook != nil || repo.Status.ObservedGeneration != 1 || len(host.Hooks("team/site")) > 0 {
		t.Fatalf("status %+v, hooks %+v", repo.Status, host.Hooks("team/site"))
	}
	told := condition(repo, conditionWebhook)
	if told.Status != "False" || told.Reason != "NotAllowed" || !strings.HasSuffix(told.Message, "; changes are found at the interval") ||
		condition(repo, "Ready").Status != "True" {
		t.Errorf("condition %+v", told)
	}
	r.wrote(1)
	host.Requests()
	r.later(refusedCooldown + time.Second)
	eventually(t, "it is tried again", func() bool { return len(host.Requests()) > 0 })
	repo = r.until("its health is noted", func(now api.Repository) bool { return now.Status.Health.Checked > repo.Status.Health.Checked })
	if got := r.writes.take(); len(got) != 1 || !strings.HasSuffix(got[0], ": test /metadata/resourceVersion, add /status/health") {
		t.Errorf("what was told is written again: %q", got)
	}

	host.Token(token, forgetest.Rights{Hooks: true})
	r.later(refusedCooldown + time.Second)
	repo = r.until("the webhook is there", func(repo api.Repository) bool { return repo.Status.Webhook != nil })
	hooks := host.Hooks("team/site")
	if len(hooks) != 1 || hooks[0].URL != "https://limpet.example.com/apis/provisioning.grafana.app/v0alpha1/namespaces/"+r.namespace+
		"/repositories/site/webhook" {
		t.Fatalf("hooks %+v", hooks)
	}
	first := r.webhookSecrets()
	if len(first) < 1 || first[0] != hooks[0].Secret {
		t.Error("the secret that is kept is not the one of the host")
	}
	if s := repo.Status.Webhook; webhookID(s) != hooks[0].ID || s.URL != hooks[0].URL || len(s.Events) == 0 || s.LastRotated == 0 {
		t.Errorf("status.webhook %+v", s)
	}

	registered := condition(repo, conditionWebhook)
	if registered.Status != "True" || registered.Reason != "Registered" {
		t.Errorf("condition %+v", registered)
	}
	_, u := r.get()
	wellFormed(t, u.Object)

	r.later(rotateAfter + time.Second)
	rotated := r.until("it has a new secret",
		func(now api.Repository) bool { return now.Status.Webhook.LastRotated > repo.Status.Webhook.LastRotated })
	if now := r.webhookSecrets(); len(now) != 2 || now[0] != host.Hooks("team/site")[0].Secret || now[1] != first[0] {
		t.Error("the present secret comes first, and the one of before is kept")
	}
	if webhookID(rotated.Status.Webhook) != hooks[0].ID {
		t.Errorf("status.webhook %+v", rotated.Status.Webhook)
	}

	r.merge(`{"spec":{"webhook":{"disabled":true}}}`)
	repo = r.until("it is gone", func(repo api.Repository) bool {
		return repo.Status.Webhook == nil && repo.Status.ObservedGeneration == 2
	})
	if c := condition(repo, conditionWebhook); c.Type != "" {
		t.Errorf("condition %+v", c)
	}
	if left := host.Hooks("team/site"); len(left) > 0 {
		t.Errorf("hooks %+v", left)
	}
	for _, line := range r.writes.take() {
		if slices.ContainsFunc(append(first, token), func(s string) bool { return strings.Contains(line, s) }) {
			t.Errorf("a secret was written: %s", line)
		}
	}
}

// TestWebhookSecretSurvivesFailures has the host refuse a new secret again and again:
// what it goes on signing with stays known.
func TestWebhookSecretSurvivesFailures(t *testing.T) {
	t.Parallel()
	const token = "glpat-of-the-repository"
	r, host := newWebhookRig(t, token)
	host.Token(token, forgetest.Rights{Hooks: true})
	r.until("the webhook is there", func(repo api.Repository) bool { return repo.Status.Webhook != nil })
	first := host.Hooks("team/site")[0].Secret
	if kept := r.webhookSecrets(); !slices.Equal(kept, []string{first}) {
		t.Fatalf("%d secrets are kept, or another one", len(kept))
	}
	var refused atomic.Int64
	host.Fault(func(req *http.Request) *forgetest.Answer {
		if req.Method != http.MethodPut {
			return nil
		}
		refused.Add(1)
		return &forgetest.Answer{Status: http.StatusBadGateway}
	})
	r.later(rotateAfter + time.Second)
	var offered string
	for n := int64(1); n <= 3; n++ {
		eventually(t, "the host refuses", func() bool { r.later(webhookCooldown + time.Second); return refused.Load() >= n })
		kept := r.webhookSecrets()
		if len(kept) != 3 || kept[0] != first || offered != "" && kept[2] != offered {
			t.Fatalf("after %d refusals the secret that the host has is not the first that is kept, or another one is offered", n)
		}
		offered = kept[2]
	}
	host.Fault(nil)
	eventually(t, "the host takes it", func() bool {
		r.later(webhookCooldown + time.Second)
		return host.Hooks("team/site")[0].Secret == offered
	})
	eventually(t, "that is kept", func() bool { return slices.Equal(r.webhookSecrets(), []string{offered, first}) })
}

// TestForeignWebhook: who receives nothing leaves the webhook alone that another controller
// else has made.
func TestForeignWebhook(t *testing.T) {
	t.Parallel()
	const token = "glpat-of-the-repository"
	r, host := newWebhookRigAt(t, token, "")
	host.Token(token, forgetest.Rights{Hooks: true})
	id := host.AddHook("team/site", forgetest.Hook{URL: "https://grafana.example.com/hook", Events: []string{"push_events"}})
	r.until("it is checked", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	_, u := r.get()
	n, err := strconv.ParseInt(id, 10, 64)
	if err == nil {
		err = unstructured.SetNestedMap(u.Object, map[string]any{"id": n, "url": "https://grafana.example.com/hook"}, "status", "webhook")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).UpdateStatus(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.merge(`{"spec":{"title":"Another"}}`)
	repo := r.until("the spec is dealt with", func(repo api.Repository) bool { return repo.Status.ObservedGeneration == 2 })
	if left := host.Hooks("team/site"); len(left) != 1 || repo.Status.Webhook == nil {
		t.Errorf("hooks %+v, status.webhook %+v", left, repo.Status.Webhook)
	}
}

func TestPauseLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, left time.Duration }{
		{0, 0},
		{-time.Second, 0},
		{webhookCooldown, webhookCooldown},
		{refusedCooldown, refusedCooldown},
		{refusedCooldown + 100*time.Millisecond, refusedCooldown + 100*time.Millisecond}, // the clock was corrected
		{20 * 365 * 24 * time.Hour, 0},
	} {
		if got := pauseLeft(at.Add(c.set), at); got != c.left {
			t.Errorf("%s: %s left, want %s", c.set, got, c.left)
		}
	}
}

// TestRegisterWebhook: how an attempt at a webhook ends, by what the token may do.
func TestRegisterWebhook(t *testing.T) {
	t.Parallel()
	const url = "https://limpet.example.com/hook"
	host := forgetest.New(t, forgetest.Options{Speaks: []string{"gitlab"}})
	host.Add("team/site", forgetest.Repository{})
	host.Token("manages", forgetest.Rights{Hooks: true})
	host.Token("reads", forgetest.Rights{})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	defer hosts.Close()
	store := openStore(t)
	w := newWebhooks(hosts, store, forge.Target{Type: "gitlab", URL: host.URL + "/team/site"})
	try := func(ctx context.Context, url, token string, has *api.WebhookStatus) *attempt {
		a := &attempt{key: reconcile.Key{Namespace: "ns", Name: "site"}, memory: &memory{}, obj: &unstructured.Unstructured{Object: map[string]any{}}, healthy: true}
		a.webhook = webhookPlan{url: url, due: triggerSpec}
		a.facts.repo.Status.Webhook = has
		a.probe = &probe{remote: git.Remote{Creds: &auth.Credentials{Username: "oauth2", Password: token}}}
		if _, err := w.register(ctx, a); err != nil {
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
		rest := pauseLeft(a.memory.webhookAfter, at)
		var status api.WebhookStatus
		changed, set := len(a.change.ops) > 0, false
		if changed {
			status, set = a.change.ops[0].Value.(api.WebhookStatus)
		}
		if changed != s.changed || rest != s.rest || status.LastEvent != s.event || set != (s.changed && s.want != "") {
			t.Errorf("%s: %v %t, rest %s", s.what, status, changed, rest)
		}
	}
	if left := host.Hooks("team/site"); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	defer func() { // one whose secret cannot be confirmed, because the disk fails, is there all the same
		host.Fault(func(*http.Request) *forgetest.Answer { store.Close(); return nil })
		if a := try(t.Context(), url, "manages", nil); len(a.change.ops) != 1 || a.webhook.err == nil {
			t.Errorf("%v, %v", a.change.ops, a.webhook.err)
		}
	}()
	// One that cannot be reached is asked again soon.
	host.Fault(func(*http.Request) *forgetest.Answer { return &forgetest.Answer{Status: 502} })
	if a := try(t.Context(), url, "manages", nil); len(a.change.ops) > 0 || pauseLeft(a.memory.webhookAfter, at) != webhookCooldown {
		t.Errorf("%v, rest %s", a.change.ops, pauseLeft(a.memory.webhookAfter, at))
	}
}

// TestWebhookOfAMovedRepository: the webhook of a repository that has moved is owed
// until its host has it, whatever ends in between, and not a second time.
func TestWebhookOfAMovedRepository(t *testing.T) {
	t.Parallel()
	host := forgetest.New(t, forgetest.Options{Speaks: []string{"gitlab"}})
	host.Token("manages", forgetest.Rights{Hooks: true})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	defer hosts.Close()
	store := openStore(t)
	var has api.RepositoryStatus
	look := func(path string, generation int64) string { // of an agent that has just been started
		target := forge.Target{Type: "gitlab", URL: host.URL + "/" + path}
		w := newWebhooks(hosts, store, target)
		r := &attempt{key: reconcile.Key{Namespace: "ns", Name: "site"}, memory: &memory{}, healthy: true, obj: &unstructured.Unstructured{}}
		r.facts.now, r.facts.generation = at, generation
		r.facts.repo.Status = has
		r.facts.repo.Status.ObservedGeneration = generation
		r.facts.repo.Spec.Type, r.facts.repo.Spec.Workflows = "gitlab", []string{"write"}
		r.facts.repo.Spec.GitLab = &api.GitBlock{URL: target.URL}
		r.webhook.url, r.webhook.due = w.plan(r)
		r.probe = &probe{remote: git.Remote{Creds: &auth.Credentials{Username: "oauth2", Password: "manages"}}}
		if _, err := w.register(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if told, ok := r.webhook.condition(); ok {
			told.ObservedGeneration = generation
			has.Conditions = []api.Condition{told}
		}
		if len(r.change.ops) > 0 {
			made := r.change.ops[0].Value.(api.WebhookStatus)
			has.Webhook = &made
		}
		return r.webhook.due
	}
	host.Add("team/site", forgetest.Repository{})
	host.Add("team/other", forgetest.Repository{})
	for i, s := range []struct {
		path       string
		generation int64
		due        string
		all        int // webhooks of team/other
	}{{"team/site", 1, triggerWebhookMissing, 0}, {"team/site", 1, "", 0}, {"team/other", 2, triggerSpec, 1}, {"team/other", 2, "", 1}} {
		if due := look(s.path, s.generation); due != s.due || len(host.Hooks("team/other")) != s.all {
			t.Errorf("%d: %q is due at %s, want %q; %d hooks there", i, due, s.path, s.due, len(host.Hooks("team/other")))
		}
	}
	has.Conditions = nil
	if first, second := look("team/other", 2), look("team/other", 2); first != triggerSpec || second != "" {
		t.Errorf("what is not known is looked at once: %q, %q", first, second)
	}
}

// newWebhooks is the step of an agent that was just started, whose Repositories are at one
// target.
func newWebhooks(hosts *forge.Hosts, store *state.Store, target forge.Target) *webhooks {
	open := func(ctx context.Context, _ *unstructured.Unstructured, creds *auth.Credentials) (Host, error) {
		return hosts.Remote(ctx, target, creds)
	}
	return &webhooks{reporter{func(reconcile.Event) {}, slog.New(slog.DiscardHandler)}, true, "https://limpet.example.com", probes{hosts: open}, store,
		func() time.Time { return at }, func(context.Context, *attempt) {}}
}

// TestWebhookCleanup: which answers of a host let a Repository be deleted.
func TestWebhookCleanup(t *testing.T) {
	t.Parallel()
	host := forgetest.New(t, forgetest.Options{Speaks: []string{"github", "gitlab"}})
	host.Add("team/site", forgetest.Repository{})
	host.Token("may-manage", forgetest.Rights{Hooks: true})
	host.Token("may-read", forgetest.Rights{})
	id := host.AddHook("team/site", forgetest.Hook{URL: "https://edge.example.com", Events: []string{"push"}})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	store := openStore(t)
	const base = "https://limpet.example.com"
	unnoted := func() {
		host.AddHook("team/site", forgetest.Hook{URL: WebhookURL(base, reconcile.Key{Namespace: "default", Name: "site"}), Events: []string{"push"}})
	}
	cases := []struct {
		name, kind, webhook, token string
		fails                      bool
		left                       int
	}{
		{"no hook", "github", `{}`, "may-manage", false, 1},
		{"a host without hooks", "git", `{"id":` + id + `}`, "may-manage", false, 1},
		{"token that is gone", "github", `{"id":` + id + `}`, "revoked", false, 1},
		{"token without the right", "gitlab", `{"id":` + id + `}`, "may-read", true, 1},
		{"the same at GitHub, which says 404", "github", `{"id":` + id + `}`, "may-read", false, 1},
		{"hook that is gone", "github", `{"id":1}`, "may-manage", false, 1},
		{"its hook", "github", `{"id":` + id + `}`, "may-manage", false, 0},
		{"again", "github", `{"id":` + id + `}`, "may-manage", false, 0},
		{"one that was never noted", "github", `{}`, "may-manage", false, 0},
		{"the same without the right", "gitlab", `{}`, "may-read", false, 1},
	}
	for _, c := range cases {
		if strings.Contains(c.name, "never noted") || strings.Contains(c.name, "the same without") {
			unnoted()
		}
		u := &unstructured.Unstructured{}
		text := `{"apiVersion":"v1","kind":"Repository","metadata":{"namespace":"default","name":"site"},
			"spec":{"type":"` + c.kind + `","` + c.kind + `":{"url":"` + host.URL + `/team/site"}},"status":{"webhook":` + c.webhook + `}}`
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := store.PutSecret(t.Context(), WebhookSecretKey(reconcile.Key{Namespace: "default", Name: "site"}), []byte("of the hook")); err != nil {
			t.Fatal(err)
		}
		from := auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			return &auth.Credentials{Username: "git", Password: c.token, Source: "test"}, nil
		})
		remotes := checkout.Source{Credentials: from, AllowInsecure: true}
		w := &webhooks{reporter: reporter{log: slog.New(slog.DiscardHandler)}, base: base,
			probes: probes{remotes: remotes.Remote, hosts: Forges(hosts)}, store: store}
		err := w.clean(t.Context(), reconcile.Key{Namespace: "default", Name: "site"}, u)
		names, _ := store.SecretNames(t.Context(), WebhookSecretKey(reconcile.Key{Namespace: "default", Name: "site"}))
		if (err != nil) != c.fails || len(names) > 0 != c.fails || len(host.Hooks("team/site")) != c.left {
			t.Errorf("%s: %v, secrets %q, %d hooks at the host", c.name, err, names, len(host.Hooks("team/site")))
		}
		if err != nil && strings.Contains(err.Error(), c.token) {
			t.Errorf("%s: the token is in %v", c.name, err)
		}
	}
}

func TestWebhookCondition(t *testing.T) {
	t.Parallel()
	fault := func(kind netx.ErrorKind) error {
		return fmt.Errorf("list: %w", &netx.Error{Kind: kind, Op: "list webhooks of team/site", Err: errors.New("it answers so, request 4711")})
	}
	for _, c := range []struct {
		err           error
		left          bool
		reason, words string
	}{
		{nil, false, "Registered", "the host announces changes"},
		{fmt.Errorf("%w at git.example.com", forge.ErrNone), false, "NoHost",
			"webhooks of this host are not supported; changes are found at the interval"},
		{fault(netx.Forbidden), false, "NotAllowed", "it answers so, request 4711; changes are found at the interval"},
		{fault(netx.Unauthorized), false, "NotAllowed", "it answers so"},
		{fault(netx.NotFound), false, "NotAllowed", "it answers so"},
		{fault(netx.RateLimited), false, "RateLimited", "the host gets too many requests; changes"},
		{fault(netx.Unavailable), false, "ServiceUnavailable", "the host does not answer as it should; changes"},
		{fault(netx.Refused), false, "NotTaken", "it answers so"},
		{&netx.Error{Kind: netx.Refused, Err: errors.New(`Validation Failed: The "push" event cannot have more than 20 hooks`)}, false,
			"LimitReached", "the host allows no further webhook for the repository (Validation Failed: The "},
		{errors.New("422 Maximum number of project hooks (100) exceeded"), false, "LimitReached", "the host allows"},
		{errors.New("keep the secret: disk full"), false, "NotTaken", "keep the secret: disk full; changes"},
		{fault(netx.Unavailable), true, "ServiceUnavailable", "the webhook is still at the host: the host does not answer as it should"},
	} {
		got := webhookCondition(c.err, c.left)
		if got.Type != "limpet/Webhook" || (got.Status == "True") != (c.err == nil) || got.Reason != c.reason ||
			!strings.HasPrefix(got.Message, c.words) {
			t.Errorf("%v: %+v", c.err, got)
		}
		wellFormed(t, map[string]any{"status": map[string]any{"conditions": []any{got.Map(at, 1, nil)}}})
	}
}

// wellFormed checks the conditions of an object by the rules of Kubernetes.
func wellFormed(t *testing.T, object map[string]any) {
	t.Helper()
	list, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	var conditions []metav1.Condition
	for _, entry := range list {
		var c metav1.Condition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(entry.(map[string]any), &c, true); err != nil {
			t.Error(err)
		}
		conditions = append(conditions, c)
	}
	for _, err := range validation.ValidateConditions(conditions, field.NewPath("status", "conditions")) {
		t.Errorf("%v: %v", err, list)
	}
}
