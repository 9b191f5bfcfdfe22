package kube

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// Handler receives the changes of an Informer, in order, one at a time, from the goroutine that
// reads the watch. Functions may be nil. They must be quick and must not call AddHandler.
type Handler struct {
	Add    func(obj Object)
	Update func(old, new Object)
	// Delete may receive an older version than the last one, when the deletion itself was not seen.
	Delete func(obj Object)
	// Any is called at every change, before the others.
	Any func()
	// Listing is called with true before the changes that a list has brought and with
	// false after them. They come in no order, those of the watch in that of the server.
	Listing func(on bool)
}

// changed calls the functions of one change; the object is new without old and gone without o.
func (h Handler) changed(old, o Object) {
	if h.Any != nil {
		h.Any()
	}
	switch {
	case old.cached == nil && h.Add != nil:
		h.Add(o)
	case o.cached == nil && h.Delete != nil:
		h.Delete(old)
	case old.cached != nil && o.cached != nil && h.Update != nil:
		h.Update(old, o)
	}
}

func (h Handler) listing(on bool) {
	if h.Listing != nil {
		h.Listing(on)
	}
}

// store is the ReflectorStore of an Informer: the objects, and the handlers of their changes.
// client-go's SharedIndexInformer does not tell handlers where a list ends, which the order of
// claims depends on, and the queue in it needs, for 100,000 jobs, 35 MiB more while a list is taken
// in.
type store struct {
	objects cache.ThreadSafeStore // of *cached
	compact bool
	synced  chan struct{} // closed by the first Replace
	moved   atomic.Pointer[time.Time]

	mu       sync.Mutex // serialises changes and the calls of handlers; guards handlers
	handlers []Handler
}

func newStore(compact bool) *store {
	return &store{objects: cache.NewThreadSafeStore(nil, nil), compact: compact, synced: make(chan struct{})}
}

func (s *store) get(key string) (Object, bool) {
	obj, ok := s.objects.Get(key)
	c, _ := obj.(*cached)
	return Object{c}, ok
}

func (s *store) list() []Object {
	all := s.objects.List()
	objects := make([]Object, len(all))
	for n, obj := range all {
		objects[n] = Object{obj.(*cached)}
	}
	return objects
}

// cached returns what the store keeps of an object that has come from the server. A
// version that is stored already is not kept twice.
func (s *store) cached(u *unstructured.Unstructured) *cached {
	known, ok := s.get(objectKey(u.GetNamespace(), u.GetName()))
	if ok && known.version() == ObjectOf(u).version() {
		return known.cached
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	if s.compact {
		return compact(u)
	}
	return &cached{whole: u}
}

// addHandler adds a handler, which receives all objects as a list first.
func (s *store) addHandler(h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.listing(true)
	for _, o := range s.list() {
		h.changed(Object{}, o)
	}
	h.listing(false)
	s.handlers = append(s.handlers, h)
}

func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore for an event of the watch.
func (s *store) Update(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		s.set(s.cached(u))
	}
	return nil
}

// set needs the lock. A version that is stored already is no change.
func (s *store) set(c *cached) {
	o := Object{c}
	old, had := s.get(o.Key())
	if had && old.version() == o.version() {
		return
	}
	s.objects.Update(o.Key(), c)
	for _, h := range s.handlers {
		h.changed(old, o)
	}
}

// Delete implements cache.ReflectorStore for an event of the watch.
func (s *store) Delete(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		s.remove(Object{s.cached(u)})
	}
	return nil
}

// remove needs the lock. last is the last known version.
func (s *store) remove(last Object) {
	if _, had := s.get(last.Key()); !had {
		return
	}
	s.objects.Delete(last.Key())
	for _, h := range s.handlers {
		h.changed(last, Object{})
	}
}

// Replace implements cache.ReflectorStore for a list of *cached.
func (s *store) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.handlers {
		h.listing(true)
	}
	listed := make(map[string]bool, len(list))
	for _, obj := range list {
		c, _ := obj.(*cached)
		listed[Object{c}.Key()] = true
		s.set(c)
	}
	for _, o := range s.list() {
		if !listed[o.Key()] {
			s.remove(o)
		}
	}
	for _, h := range s.handlers {
		h.listing(false)
	}
	select {
	case <-s.synced:
	default:
		close(s.synced)
	}
	return nil
}

// UpdateResourceVersion is called by the reflector after each event and bookmark.
func (s *store) UpdateResourceVersion(string) { s.move() }

// move records that the Informer is at work.
func (s *store) move() { s.moved.Store(new(time.Now())) }

func (s *store) Resync() error { return nil }
