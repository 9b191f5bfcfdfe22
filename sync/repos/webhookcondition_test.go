package repos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/netx"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/worker"
)

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
		host.AddHook("team/site", forgetest.Hook{URL: WebhookURL(base, Key{"default", "site"}), Events: []string{"push"}})
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
		if err := store.PutSecret(t.Context(), WebhookSecretKey(Key{"default", "site"}), []byte("of the hook")); err != nil {
			t.Fatal(err)
		}
		from := auth.Source(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			return &auth.Credentials{Username: "git", Password: c.token, Source: "test"}, nil
		})
		remotes := worker.Remotes{Credentials: from, AllowInsecure: true}
		w := &webhooks{reporter: reporter{log: slog.New(slog.DiscardHandler)}, base: base,
			probes: probes{remotes: remotes.Remote, hosts: Forges(hosts)}, store: store}
		err := w.clean(t.Context(), Key{"default", "site"}, u)
		names, _ := store.SecretNames(t.Context(), WebhookSecretKey(Key{"default", "site"}))
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
