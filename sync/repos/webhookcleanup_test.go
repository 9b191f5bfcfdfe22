package repos

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/forge"
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
		if err := store.PutSecret(t.Context(), webhookSecretKey(Key{"default", "site"}), []byte("of the hook")); err != nil {
			t.Fatal(err)
		}
		from := auth.SourceFunc(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			return &auth.Credentials{Username: "git", Password: c.token, Source: "test"}, nil
		})
		cleanup := &WebhookCleanup{Remotes: worker.Remotes{Credentials: from, AllowInsecure: true}, Hosts: Forges{hosts}, Store: store, Base: base, Logger: slog.New(slog.DiscardHandler)}
		err := cleanup.Clean(t.Context(), u)
		names, _ := store.SecretNames(t.Context(), webhookSecretKey(Key{"default", "site"}))
		if (err != nil) != c.fails || len(names) > 0 != c.fails || len(host.Hooks("team/site")) != c.left {
			t.Errorf("%s: %v, secrets %q, %d hooks at the host", c.name, err, names, len(host.Hooks("team/site")))
		}
		if err != nil && strings.Contains(err.Error(), c.token) {
			t.Errorf("%s: the token is in %v", c.name, err)
		}
	}
}
