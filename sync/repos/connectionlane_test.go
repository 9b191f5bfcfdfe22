package repos

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/forge"
	"limpet/sync/kube"
)

// silentTester asks hosts of which one never answers.
type silentTester struct {
	mu    sync.Mutex // guards asked
	asked map[string]int
}

func (s *silentTester) Test(ctx context.Context, c forge.Connection) error {
	s.mu.Lock()
	s.asked[c.Name]++
	s.mu.Unlock()
	if strings.Contains(c.Spec.URL, "silent.example.com") {
		<-ctx.Done()
		return &forge.Error{Kind: forge.Unavailable, Op: "test", Err: context.Cause(ctx)}
	}
	return nil
}

// TestSilentHostOfConnections: one that never answers holds up the Connections of no
// other, and its own are looked at in turn.
func TestSilentHostOfConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		log := slog.New(slog.DiscardHandler)
		server, err := apiserver.New(store, apiserver.Options{Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		client, err := kube.Connect(t.Context(), kube.Config{Server: "http://embedded", Transport: server.Transport(), Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		const each = 12
		for i := range each {
			for name, host := range map[string]string{"a-silent": "silent.example.com", "b-well": fmt.Sprintf("git-%d.example.com", i)} {
				u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": name, "type": "gitlab", "url": "https://" + host}}}
				u.SetAPIVersion(api.Connections.GroupVersion().String())
				u.SetKind("Connection")
				u.SetName(fmt.Sprintf("%s-%d", name, i))
				if _, err := client.Resource(api.Connections).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		tester := &silentTester{asked: map[string]int{}}
		objects := client.Informer(api.Connections, "", kube.InformerOptions{})
		repositories, queue := client.Informer(api.Repositories, "", kube.InformerOptions{}), client.Informer(api.Jobs, "", kube.InformerOptions{Compact: true})
		k := NewConnections(client, objects, ConnectionOptions{Tester: tester, Repositories: New(client, repositories, queue, Options{Logger: log}), Logger: log})
		ctx, cancel := context.WithCancel(t.Context())
		var g errgroup.Group
		for _, part := range []func(context.Context) error{objects.Run, repositories.Run, k.Run} {
			g.Go(func() error { return part(ctx) })
		}
		asked := func(name string) (n int) {
			tester.mu.Lock()
			defer tester.mu.Unlock()
			for i := range each {
				n += min(1, tester.asked[fmt.Sprintf("%s-%d", name, i)])
			}
			return n
		}
		time.Sleep(probeTimeout - time.Second)
		if well, silent := asked("b-well"), asked("a-silent"); well != each || silent != perHost {
			t.Errorf("%d of %d were looked at beside a silent host, and %d of that, want %d", well, each, silent, perHost)
		}
		time.Sleep(each * probeTimeout)
		if n := asked("a-silent"); n != each {
			t.Errorf("%d of %d of the silent host had their turn", n, each)
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
