package members

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/kube"
	"limpet/sync/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// TestMembersOfAnAPI: two agents on the API machinery share the objects, and one
// that ends leaves its share to the other at once.
func TestMembersOfAnAPI(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Options{Leases: true})
	type one struct {
		*Members
		client  *kube.Client
		changed chan struct{}
		stop    func()
	}
	begin := func(id string) *one {
		client, err := kube.Connect(t.Context(), kube.Config{Server: server.URL, TLS: kube.TLS{CAFile: server.CAFile}, Token: server.Token, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		o := &one{client: client, changed: make(chan struct{}, 1)}
		o.Members = New(client, Options{Namespace: "default", ID: id, Agent: id, Logger: slog.New(slog.DiscardHandler), Changed: func() {
			select {
			case o.changed <- struct{}{}:
			default:
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- o.Run(ctx) }()
		o.stop = func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		return o
	}
	mine := func(o *one) (n int) {
		for i := range objects {
			if o.Mine("default", string(rune('a'+i%26))+string(rune('a'+i/26)), nil) {
				n++
			}
		}
		return n
	}
	wait := func(what string, o *one, ok func() bool) {
		t.Helper()
		late := time.After(30 * time.Second)
		for !ok() {
			select {
			case <-o.changed:
			case <-late:
				t.Fatalf("not within 30 s: %s", what)
			}
		}
	}
	a := begin("a")
	wait("the first has all", a, func() bool { return mine(a) == objects })
	b := begin("b")
	wait("the second has a share", b, func() bool { return mine(b) > 0 })
	if x, y := mine(a), mine(b); x+y != objects || x < objects/3 || y < objects/3 {
		t.Errorf("shares of %d and %d", x, y)
	}
	list, err := a.client.Resource(leases).Namespace("default").List(t.Context(), metav1.ListOptions{LabelSelector: selectRole})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%d leases, %v", len(list.Items), err)
	}
	a.stop()
	wait("the second has all", b, func() bool { return mine(b) == objects })
	b.stop()
}

// TestMembersWhereNoneAreServed: on an API like Grafana's each agent is for itself.
func TestMembersWhereNoneAreServed(t *testing.T) {
	t.Parallel()
	server := testenv.Real(t)
	client, err := kube.Connect(t.Context(), kube.Config{Server: server.URL, TLS: kube.TLS{CAFile: server.CAFile}, Token: server.Token, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	m := New(client, Options{Namespace: "default", ID: "a", Agent: "a", Logger: slog.New(slog.DiscardHandler)})
	if err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, served := m.Here(); served || !m.Mine("default", "repo", nil) {
		t.Error("it waits for leases")
	}
}
