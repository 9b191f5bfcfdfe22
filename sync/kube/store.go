package kube

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Handler receives the changes of an Informer, in order, one at a time, from the
// goroutine that reads the watch. Functions may be nil. They must be quick and must not
// call AddHandler.
type Handler struct {
	Add    func(obj Object)
	Update func(old, new Object)
	// Delete may receive an older version than the last one, when the deletion
	// itself was not seen.
	Delete func(obj Object)
	// Any is called at every change, before the others.
	Any func()
	// Listing is called with true before the changes that a list has brought and with
	// false after them. They come in no order, those of the watch in that of the server.
	Listing func(on bool)
}

func (h Handler) listing(on bool) {
	if h.Listing != nil {
		h.Listing(on)
	}
}

func (h Handler) any() {
	if h.Any != nil {
		h.Any()
	}
}

func (h Handler) added(o Object) {
	h.any()
	if h.Add != nil {
		h.Add(o)
	}
}

func (h Handler) updated(old, o Object) {
	h.any()
	if h.Update != nil {
		h.Update(old, o)
	}
}

func (h Handler) deleted(o Object) {
	h.any()
	if h.Delete != nil {
		h.Delete(o)
	}
}

// store is the ReflectorStore of an Informer: the objects, and the handlers of their
// changes. The queue between the two in client-go's SharedIndexInformer needs, for
// 100,000 jobs, 35 MiB more while a list is taken in.
type store struct {
	objects cache.ThreadSafeStore // of *cached
	synced  chan struct{}         // closed by the first Replace

	mu       sync.Mutex // serialises changes and the calls of handlers; guards handlers
	handlers []Handler
}

func newStore() *store {
	return &store{objects: cache.NewThreadSafeStore(nil, nil), synced: make(chan struct{})}
}

func (s *store) get(key string) (Object, bool) {
	obj, ok := s.objects.Get(key)
	return objectIn(obj), ok
}

// objectIn returns what the store holds.
func objectIn(obj any) Object {
	c, _ := obj.(*cached)
	return Object{c}
}

func (s *store) list() []Object {
	all := s.objects.List()
	objects := make([]Object, len(all))
	for n, obj := range all {
		objects[n] = objectIn(obj)
	}
	return objects
}

// addHandler adds a handler, which receives all objects as a list first.
func (s *store) addHandler(h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.listing(true)
	for _, o := range s.list() {
		h.added(o)
	}
	h.listing(false)
	s.handlers = append(s.handlers, h)
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(objectIn(obj))
	return nil
}

// set needs the lock. A version that is stored already is no change.
func (s *store) set(o Object) {
	key := o.Key()
	old, had := s.get(key)
	if had && old.version() == o.version() {
		return
	}
	s.objects.Update(key, o.cached)
	for _, h := range s.handlers {
		if had {
			h.updated(old, o)
		} else {
			h.added(o)
		}
	}
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(objectIn(obj))
	return nil
}

// remove needs the lock. last is the last known version.
func (s *store) remove(last Object) {
	if _, had := s.get(last.Key()); !had {
		return
	}
	s.objects.Delete(last.Key())
	for _, h := range s.handlers {
		h.deleted(last)
	}
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.handlers {
		h.listing(true)
	}
	before := s.list()
	if len(before) == 0 { // the map need not grow step by step
		objects := make(map[string]any, len(list))
		for _, obj := range list {
			objects[objectIn(obj).Key()] = obj
		}
		s.objects.Replace(objects, "")
		for _, obj := range objects {
			for _, h := range s.handlers {
				h.added(objectIn(obj))
			}
		}
	} else {
		for _, obj := range list {
			s.set(objectIn(obj))
		}
		listed := make(map[string]struct{}, len(list))
		for _, obj := range list {
			listed[objectIn(obj).Key()] = struct{}{}
		}
		for _, o := range before {
			if _, ok := listed[o.Key()]; !ok {
				s.remove(o)
			}
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

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }
