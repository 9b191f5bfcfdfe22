package repos

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/kube"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

// TestConnectionHealth: a Connection whose token is refused says so in one patch, is healthy
// again when the host takes it, and has the Repositories reconciled that use it.
// An idle one is not written.
func TestConnectionHealth(t *testing.T) {
	t.Parallel()
	const token = "glpat-of-the-connection"
	host := forgetest.New(t, forgetest.Options{})
	r := newRig(t, "embedded", func(r *rig, _ *Options) {
		r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right"})
	})
	r.repo.Add(t, "a.json")
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	minter := forge.NewMinter(hosts, func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{Password: token, Source: "the test"}, nil
	}, auth.NewTokens(0))
	endpoint, _ := r.client.Endpoint()
	mine := connect(t, endpoint.String(), r.writes)
	objects := mine.Informer(api.Connections, r.namespace, kube.InformerOptions{})
	k := NewConnections(mine, objects, ConnectionOptions{Minter: minter, Repositories: r.controller, Logger: slog.New(slog.DiscardHandler)})
	now := k.now
	k.now = func() time.Time { return now().Add(time.Duration(r.ahead.Load())) }
	r.run(objects.Run, k.Run)

	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Lab", "type": "gitlab", "url": host.URL},
		"secure": map[string]any{"token": map[string]any{"create": token}}}}
	u.SetAPIVersion(api.Connections.GroupVersion().String())
	u.SetKind("Connection")
	u.SetName("lab")
	res := r.client.Resource(api.Connections).Namespace(r.namespace)
	if _, err := res.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	connection := func(what string, ok func(api.Connection) bool) (last api.Connection) {
		t.Helper()
		eventually(t, what, func() bool {
			seen, err := res.Get(t.Context(), "lab", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if last, err = api.ConnectionView(seen); err != nil {
				t.Fatal(err)
			}
			return ok(last)
		})
		return last
	}
	ill := connection("the refusal is told", func(c api.Connection) bool { return c.Status.Health.Checked > 0 })
	if s := ill.Status; s.Health.Healthy || len(s.Conditions) != 1 || s.Conditions[0].Type != "Ready" ||
		s.Conditions[0].Reason != "AuthenticationFailed" ||
		len(s.FieldErrors) != 1 || s.FieldErrors[0].Field != "secure.token" || s.ObservedGeneration != 1 ||
		strings.Contains(s.Conditions[0].Message, token) {
		t.Errorf("status %+v", s)
	}
	r.wrote(1)

	// A Repository that waits for it.
	r.create(map[string]any{"connection": map[string]any{"name": "lab"}}, nil)
	r.until("the repository is refused too", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	r.wrote(1)
	r.creds.Store(&auth.Credentials{Username: "git", Password: "right"})
	host.Token(token, forgetest.Rights{})
	r.ahead.Add(int64(unhealthyFor))
	r.ahead.Add(int64(time.Second))
	k.Wake(r.namespace, "lab")
	well := connection("it is well again", func(c api.Connection) bool { return c.Status.Health.Healthy })
	if s := well.Status; s.Conditions[0].Status != "True" || s.Conditions[0].Reason != "Available" || len(s.FieldErrors) > 0 {
		t.Errorf("status %+v", s)
	}
	r.until("and so is the repository", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	r.wrote(3) // of the connection, of the repository, and its pull
	k.Wake(r.namespace, "lab")
	eventually(t, "it waits for its next check", func() bool {
		next := k.Next(r.namespace, "lab")
		return k.Len() == 0 && next.After(time.Now().Add(healthyFor-time.Minute))
	})
	if got := r.writes.take(); len(got) > 0 {
		t.Errorf("an idle connection was written: %q", got)
	}
}

// TestUnusableSecret: a fault of the secret is told; one of the API is over soon.
func TestUnusableSecret(t *testing.T) {
	t.Parallel()
	hosts := forge.New(forge.Options{})
	defer hosts.Close()
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec":   map[string]any{"title": "Lab", "type": "gitlab", "url": "https://lab.example"},
		"secure": map[string]any{"token": map[string]any{"name": "lab"}}}}
	u.SetName("lab")
	for _, c := range []struct {
		fault error
		told  bool
	}{
		{errors.New("secret default/lab is empty"), true},
		{&kube.UnavailableError{Err: errors.New("away")}, false},
		{apierrors.NewInternalError(errors.New("of the disk")), false},
	} {
		secrets := func(context.Context, auth.Lookup) (*auth.Credentials, error) { return nil, c.fault }
		minter := forge.NewMinter(hosts, secrets, auth.NewTokens(0))
		got, err := checkConnection(t.Context(), minter, u)
		if told := err == nil && got.ready().Reason == "InvalidSpec" && strings.Contains(got.Error(), c.fault.Error()); told != c.told {
			t.Errorf("%v: %+v, %v", c.fault, got, err)
		}
	}
}
