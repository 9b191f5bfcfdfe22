package kube

import "iter"

// album is a set of objects, all packed or all whole. It is not safe for
// concurrent use.
type album struct {
	from   *origin           // of the packed ones
	packed map[string]string // by key, which is a part of it
	whole  map[string]Object
}

func newAlbum(from *origin) *album {
	return &album{from: from, packed: map[string]string{}, whole: map[string]Object{}}
}

func (a *album) get(key string) (Object, bool) {
	if packed, ok := a.packed[key]; ok {
		return Object{packed: packed, from: a.from}, true
	}
	s, ok := a.whole[key]
	return s, ok
}

// put keeps a sight and returns the one before.
func (a *album) put(s Object) (old Object, had bool) {
	key := s.Key()
	old, had = a.get(key)
	if s.packed != "" {
		a.packed[key] = s.packed
	} else {
		a.whole[key] = s
	}
	return old, had
}

// drop forgets an object and returns it.
func (a *album) drop(key string) (old Object, had bool) {
	old, had = a.get(key)
	delete(a.packed, key)
	delete(a.whole, key)
	return old, had
}

func (a *album) count() int { return len(a.packed) + len(a.whole) }

// each yields all sights, in no order. The one that is yielded may be dropped.
func (a *album) each() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for _, packed := range a.packed {
			if !yield(Object{packed: packed, from: a.from}) {
				return
			}
		}
		for _, s := range a.whole {
			if !yield(s) {
				return
			}
		}
	}
}
