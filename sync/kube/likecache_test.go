package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ledgerOf keeps what a handler was told of each object, and the last of it.
type ledgerOf struct {
	mu   sync.Mutex // guards told
	told map[string][]string
}

func (l *ledgerOf) note(key, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[key] = append(l.told[key], text)
}

// story is what was told of an object between its first and its last state,
// without what says nothing new.
func (l *ledgerOf) story() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for key, told := range l.told {
		out = append(out, key+": "+strings.Join(told, " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (l *ledgerOf) handler() Handler {
	return Handler{
		Add: func(u *unstructured.Unstructured) { l.note(u.GetName(), "+"+u.GetResourceVersion()) },
		Update: func(old, u *unstructured.Unstructured) {
			if old.GetResourceVersion() != u.GetResourceVersion() { // client-go repeats what it lists again
				l.note(u.GetName(), old.GetResourceVersion()+">"+u.GetResourceVersion())
			}
		},
		Delete: func(u *unstructured.Unstructured) { l.note(u.GetName(), "-"+u.GetResourceVersion()) },
	}
}

// TestInformerLikeClientGo plays random changes, broken and expired watches and
// lists to a packed Informer, a whole one, and to client-go's own: they have the
// same picture at the end, and their handlers were told the same.
func TestInformerLikeClientGo(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := newShelf(t)
			modes := []string{"", "", "refuse"}
			s.initial = modes[r.IntN(len(modes))]
			s.goneInside = r.IntN(2) == 0
			s.pageSize = 1 + r.IntN(4)
			change := func() {
				name := fmt.Sprint("o", r.IntN(6))
				s.mu.Lock()
				_, has := s.objects[objectKey("default", name)]
				s.mu.Unlock()
				if has && r.IntN(3) == 0 {
					s.drop("default", name)
				} else {
					s.put("default", name, fmt.Sprint(r.IntN(100)))
				}
			}
			for range r.IntN(8) {
				change()
			}
			client := connect(t, Config{Transport: &wire{handler: s}})
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			books := map[string]*ledgerOf{}
			pictures := map[string]func() string{}
			for _, packed := range []bool{false, true} {
				i, book := client.Informer(things, "", InformerOptions{Compact: packed}), &ledgerOf{told: map[string][]string{}}
				i.AddHandler(book.handler())
				group.Go(func() { _ = i.Run(ctx) })
				name := fmt.Sprint("packed ", packed)
				books[name], pictures[name] = book, func() string { return contents(i) }
			}
			book := &ledgerOf{told: map[string][]string{}}
			shared := sharedInformer(client, book.handler())
			group.Go(func() { shared.RunWithContext(ctx) })
			books["client-go"] = book
			pictures["client-go"] = func() string {
				var out []string
				for _, obj := range shared.GetStore().List() {
					u, _ := obj.(*unstructured.Unstructured)
					out = append(out, objectKey(u.GetNamespace(), u.GetName())+"="+value(u))
				}
				slices.Sort(out)
				return strings.Join(out, " ")
			}
			pass(time.Minute)
			for range 30 {
				switch r.IntN(12) {
				case 0: // nobody hears of what happens, and then it is too late
					s.set(func(s *shelf) { s.silent = true })
					for range 1 + r.IntN(4) {
						change()
					}
					s.compact()
					pass(16 * time.Minute) // all watches end and begin again
					s.set(func(s *shelf) { s.silent = false })
					pass(5 * time.Minute)
				case 1:
					pass(12 * time.Minute)
				default:
					change()
				}
				synctest.Wait()
			}
			pass(30 * time.Minute)
			want, told := pictures["client-go"](), books["client-go"].story()
			for name, picture := range pictures {
				if got := picture(); got != want {
					t.Errorf("seed %d, %s: %s\nwant %s", seed, name, got, want)
				}
				if got := books[name].story(); got != told {
					t.Errorf("seed %d, %s was told\n%s\nwant\n%s", seed, name, got, told)
				}
			}
		})
	}
}

// sharedInformer is client-go's informer, over the same client.
func sharedInformer(c *Client, h Handler) cache.SharedIndexInformer {
	shared := cache.NewSharedIndexInformerWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Resource(things).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Resource(things).Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{})
	as := func(obj any) *unstructured.Unstructured {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		u, _ := obj.(*unstructured.Unstructured)
		return u
	}
	_, _ = shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.Add(as(obj)) },
		UpdateFunc: func(old, obj any) { h.Update(as(old), as(obj)) },
		DeleteFunc: func(obj any) { h.Delete(as(obj)) },
	})
	return shared
}
