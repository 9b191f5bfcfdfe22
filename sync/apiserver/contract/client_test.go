package contract

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/kube"
)

func (k kind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.plural}
}

// unstructuredOf makes the client's form of an object, as if it had been read.
func unstructuredOf(o object) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: clone(o)}
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
	{"distinguishes errors", func(e *env) {
		ctx, r := e.Context(), e.target.Client.Resource(folders.resource()).Namespace(e.ns)
		if _, err := r.Create(ctx, unstructuredOf(folders.named("Bad Name")), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			e.Errorf("invalid name: %v", err)
		}
		if _, err := r.List(ctx, metav1.ListOptions{LabelSelector: "a b"}); !apierrors.IsBadRequest(err) {
			e.Errorf("bad selector: %v", err)
		}
		nowhere := schema.GroupVersionResource{Group: "absent.example.com", Version: "v1", Resource: "boats"}
		if _, err := e.target.Client.Resource(nowhere).Namespace(e.ns).Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			e.Errorf("unknown resource: %v", err)
		}
	}},
	{"watches", func(e *env) {
		ctx, r := e.Context(), e.target.Client.Resource(folders.resource()).Namespace(e.ns)
		l, err := r.List(ctx, metav1.ListOptions{})
		if err != nil {
			e.Fatal(err)
		}
		w, err := r.Watch(ctx, metav1.ListOptions{ResourceVersion: l.GetResourceVersion()})
		if err != nil {
			e.Fatal(err)
		}
		defer w.Stop()
		e.create(folders, folders.named("a"))
		select {
		case ev := <-w.ResultChan():
			if ev.Type != watch.Added || ev.Object.(*unstructured.Unstructured).GetName() != "a" {
				e.Errorf("event %v", ev)
			}
		case <-time.After(patience):
			e.Error("no event")
		}
	}},
	{"keeps the server's clock", func(e *env) {
		if err := e.target.Client.Check(e.Context()); err != nil {
			e.Fatal(err)
		}
		now, bound, ok := e.target.Client.Clock().Now()
		if !ok || bound > 5*time.Second || time.Since(now).Abs() > bound+2*time.Second {
			e.Errorf("server time %s ± %s, known %t", now, bound, ok)
		}
	}},
	{"has an informer that follows", func(e *env) {
		e.create(repositories, repositories.named("before"))
		events := make(chan string, 100)
		inf := e.follow(repositories, kube.InformerOptions{}, kube.Handler{
			Add:    func(o kube.Object) { events <- "add " + o.Name() },
			Update: func(_, o kube.Object) { events <- "update " + o.Name() },
			Delete: func(o kube.Object) { events <- "delete " + o.Name() },
		})
		o := e.create(repositories, repositories.named("a"))
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
	{"has an informer of a selection", func(e *env) {
		e.create(folders, labeled(folders.named("a"), "x", "1"))
		b := e.create(folders, folders.named("b"))
		inf := e.follow(folders, kube.InformerOptions{LabelSelector: "x=1"}, kube.Handler{})
		names := func() []string {
			var out []string
			for _, u := range inf.List() {
				out = append(out, u.GetName())
			}
			slices.Sort(out)
			return out
		}
		if got := names(); !slices.Equal(got, []string{"a"}) {
			e.Errorf("the informer holds %q", got)
		}
		e.put(folders.in(e.ns, "b"), labeled(b, "x", "1")).is(200)
		until(e.T, "b enters", func() bool { return slices.Equal(names(), []string{"a", "b"}) })
		e.patch(folders.in(e.ns, "a"), typeMerge, object{"metadata": object{"labels": nil}}).is(200)
		until(e.T, "a leaves", func() bool { return slices.Equal(names(), []string{"b"}) })
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
		if n := inf.Corrections(); n != 0 {
			e.Errorf("%d objects had to be put right by a full list", n)
		}
	}},
}
