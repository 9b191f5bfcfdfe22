package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// TestPruneOnTheRealAPI: two agents clear a backlog of 2,500 HistoricJobs off a
// real API server at the same time. Those of the window stay, no deletion is
// without its preconditions, and the requests are not much more than one for
// each.
func TestPruneOnTheRealAPI(t *testing.T) {
	t.Parallel()
	const old, young, namespace = 2500, 40, "prune"
	server := testenv.Start(t, testenv.Options{})
	quiet := slog.New(slog.DiscardHandler)
	connect := func() *kube.Client {
		c, err := kube.Connect(t.Context(), kube.Config{Server: server.URL, Token: server.Token, TLS: kube.TLS{CAFile: server.CAFile}, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	client := connect()
	archive := client.Resource(api.HistoricJobs).Namespace(namespace)
	var g errgroup.Group
	g.SetLimit(32)
	for i := range old + young {
		finished := time.Now().Add(-2 * time.Hour).UnixMilli()
		switch {
		case i < young:
			finished = time.Now().Add(time.Hour).UnixMilli() // the test may take long
		case i%3 == 0:
			finished /= 1000 // as older versions of Grafana wrote it
		}
		g.Go(func() error {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": api.HistoricJobs.GroupVersion().String(), "kind": "HistoricJob",
				"spec": map[string]any{"action": "pull", "repository": "r"}, "status": map[string]any{"state": "success", "finished": finished}}}
			u.SetName(fmt.Sprintf("h-%05d", i))
			_, err := archive.Create(t.Context(), u, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	mark := server.Mark(t)
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	var pruned counted
	for i := range 2 {
		c := connect()
		jobs, repos := c.Informer(api.Jobs, namespace, kube.InformerOptions{}), c.Informer(api.Repositories, namespace, kube.InformerOptions{})
		k, err := New(c, jobs, repos, openStore(t), []Worker{quick()}, Options{Namespace: namespace, HistoryExpiration: 8 * time.Second, Agent: fmt.Sprint("a", i), Logger: quiet, Observe: pruned.observe})
		if err != nil {
			t.Fatal(err)
		}
		parts.Go(func() { _ = jobs.Run(ctx) })
		parts.Go(func() { _ = repos.Run(ctx) })
		parts.Go(func() {
			if err := k.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	left := func() int {
		list, err := archive.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	// Both have to have ended their passes: a deletion that is cut off is not counted.
	until(t, 2*time.Minute, func() bool { return pruned.remote() >= old && left() == young })
	cancel()
	parts.Wait()
	asked, gone := 0, 0
	for _, r := range server.Writes(t, mark) {
		if r.Method != "DELETE" {
			continue
		}
		asked++
		if r.Code == 404 || r.Code == 409 {
			gone++
		}
	}
	t.Logf("%d HistoricJobs took two agents %d requests, %d of them too late", old, asked, gone)
	if pruned.remote() != old || asked-gone != old || asked > old*5/4 {
		t.Errorf("%d deletions, %d of them in vain, %d counted", asked, gone, pruned.remote())
	}
	if n := left(); n != young {
		t.Errorf("%d are left, want %d", n, young)
	}
}

// counted adds up what is pruned.
type counted struct {
	mu sync.Mutex // guards n
	n  int
}

func (c *counted) observe(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, ok := e.Detail.(HistoryPruned); ok {
		c.n += d.Remote
	}
}

func (c *counted) remote() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
