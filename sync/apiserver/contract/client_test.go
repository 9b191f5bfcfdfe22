package contract

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/kube"
)

func (k kind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.plural}
}

// follow runs an informer until the end of the case and returns it synced.
func (e *env) follow(k kind, o kube.InformerOptions, h kube.Handler) *kube.Informer {
	e.Helper()
	inf := e.target.Client.Informer(k.resource(), e.ns, o)
	inf.AddHandler(h)
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	e.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.Errorf("informer: %v", err)
		}
	})
	wait, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := inf.WaitSynced(wait); err != nil {
		e.Fatalf("informer does not sync: %v (%v)", err, inf.LastError())
	}
	return inf
}

// until waits for what another goroutine does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: not in %s", what, patience)
		}
	}
}

var clientCases = []testCase{
	{"has an informer that follows", func(e *env) {
		e.create(repositories, repositories.named("before"))
		events := make(chan string, 100)
		inf := e.follow(repositories, kube.InformerOptions{}, kube.Handler{
			Add:    func(o kube.Object) { events <- "add " + o.Name() },
			Update: func(_, o kube.Object) { events <- "update " + o.Name() },
			Delete: func(o kube.Object) { events <- "delete " + o.Name() },
		})
		o := e.create(repositories, set(repositories.named("a"), "https://git.example.com/a.git", "spec", "git", "url"))
		e.put(repositories.in(e.ns, "a", "status"), set(o, "x", "status", "message")).is(200)
		e.delete(repositories.in(e.ns, "a"), nil).is(200)
		for _, want := range []string{"add before", "add a", "update a", "delete a"} {
			select {
			case got := <-events:
				if got != want {
					e.Errorf("event %q, want %q", got, want)
				}
			case <-time.After(patience):
				e.Fatalf("no event, want %q", want)
			}
		}
		if l := inf.List(); len(l) != 1 || l[0].GetName() != "before" {
			e.Errorf("the informer holds %v", l)
		}
	}},
	{"has an informer that keeps up with 500 quick writes", func(e *env) {
		inf := e.follow(folders, kube.InformerOptions{}, kube.Handler{})
		const writers, each = 10, 50
		last := make([]string, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				o := folders.named(fmt.Sprintf("n%d", i))
				a := e.post(folders.in(e.ns), o)
				for n := 1; n < each && a.code < 300; n++ {
					a = e.put(folders.in(e.ns, name(o)), set(a.object, n, "spec", "n"))
				}
				last[i] = version(a.object)
			})
		}
		wg.Wait()
		until(e.T, "the informer holds the last versions", func() bool {
			for i := range writers {
				u, ok := inf.Get(e.ns, fmt.Sprintf("n%d", i))
				if !ok || u.GetResourceVersion() != last[i] {
					return false
				}
			}
			return true
		})
	}},
}
