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
)

// What a watch does not deliver, the full list every 10 minutes finds.
func TestInformerComparesWithFullList(t *testing.T) {
	for _, page := range []int{0, 1} {
		bubble(t, func(s *shelf) { s.pageSize = page }, InformerOptions{}, func(t *testing.T, w *watched) {
			w.want(t, "default/a=1 other/b=1")
			pass(time.Minute)
			lists, _ := w.shelf.requests()
			w.shelf.set(func(s *shelf) { s.silent = true })
			w.shelf.put("default", "a", "2")
			w.shelf.put("default", "c", "1")
			w.shelf.drop("other", "b")
			w.want(t, "default/a=1 other/b=1")
			pass(relistEvery * 3 / 2)
			w.want(t, "default/a=2 default/c=1")
			if n := w.Corrections(); n != 1 {
				t.Errorf("%d corrections, want 1", n)
			}
			w.shelf.set(func(s *shelf) { s.silent = false })
			pass(2 * time.Hour)
			after, _ := w.shelf.requests()
			if n := len(after) - len(lists); n < 8 || n > 40 {
				t.Errorf("%d lists in two hours, want about 12", n)
			}
			if n := w.Corrections(); n != 1 {
				t.Errorf("%d corrections, want 1", n)
			}
		})
	}
}

func TestDiffering(t *testing.T) {
	type m = map[string]string
	for name, tc := range map[string]struct {
		before, listed, later m
		want                  []string
	}{
		"same":                    {m{"a": "1"}, m{"a": "1"}, m{"a": "1"}, nil},
		"missed update":           {m{"a": "1"}, m{"a": "2"}, m{"a": "1"}, []string{"a"}},
		"update arrived":          {m{"a": "1"}, m{"a": "2"}, m{"a": "2"}, nil},
		"overtaken":               {m{"a": "1"}, m{"a": "2"}, m{"a": "3"}, nil},
		"missed add":              {m{}, m{"a": "1"}, m{}, []string{"a"}},
		"add arrived":             {m{}, m{"a": "1"}, m{"a": "1"}, nil},
		"missed delete":           {m{"a": "1"}, m{}, m{"a": "1"}, []string{"a"}},
		"delete arrived":          {m{"a": "1"}, m{}, m{}, nil},
		"made anew":               {m{"a": "1"}, m{}, m{"a": "2"}, nil},
		"added since the list":    {m{}, m{}, m{"a": "1"}, nil},
		"changed since the list":  {m{"a": "1"}, m{"a": "1"}, m{"a": "2"}, nil},
		"deleted since the list":  {m{"a": "1"}, m{"a": "1"}, m{}, nil},
		"deleted after an update": {m{"a": "1"}, m{"a": "2"}, m{}, nil},
	} {
		if got := differing(tc.before, tc.listed, tc.later); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// replica is what a handler makes of the changes alone.
type replica struct {
	t *testing.T

	mu      sync.Mutex // guards objects
	objects map[string]Object
}

func (r *replica) handler() Handler {
	return Handler{
		Add: func(o Object) {
			if had := r.replace(o.Key(), o); had != (Object{}) {
				r.t.Errorf("%s is added twice", o.Key())
			}
		},
		Update: func(old, o Object) {
			if had := r.replace(o.Key(), o); had != old {
				r.t.Errorf("%s changes from version %q, the last one was %q", o.Key(), old.version(), had.version())
			}
		},
		Delete: func(o Object) {
			if had := r.replace(o.Key(), Object{}); had == (Object{}) {
				r.t.Errorf("%s is deleted twice", o.Key())
			}
		},
	}
}

// replace returns what was there before.
func (r *replica) replace(key string, o Object) (had Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	had = r.objects[key]
	if delete(r.objects, key); o != (Object{}) {
		r.objects[key] = o
	}
	return had
}

func (r *replica) contents() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for key, o := range r.objects {
		out = append(out, key+"="+o.Text(pathValue))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestInformerRandomFaults plays random changes, broken and expired watches and
// lists: at the end the cache has what the server has, and so has a handler that
// knows nothing but the changes.
func TestInformerRandomFaults(t *testing.T) {
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
			i := client.Informer(things, "", InformerOptions{Compact: seed%2 == 0})
			copied := &replica{t: t, objects: map[string]Object{}}
			i.AddHandler(copied.handler())
			group.Go(func() { _ = i.Run(ctx) })
			pass(time.Minute)
			for range 30 {
				switch r.IntN(12) {
				case 0: // the watch is silent until it is too late
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
			want := s.contents()
			if got := contents(i); got != want {
				t.Errorf("seed %d: cache %s\nwant %s", seed, got, want)
			}
			if got := copied.contents(); got != want {
				t.Errorf("seed %d: handler %s\nwant %s", seed, got, want)
			}
		})
	}
}
