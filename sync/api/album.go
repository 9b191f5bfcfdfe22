package api

import (
	"iter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// album is a set of objects by key, packed or whole. It is not safe for
// concurrent use.
type album struct {
	packer *packer // nil = objects are kept whole
	packed map[string]string
	whole  map[string]*unstructured.Unstructured
}

func newAlbum(p *packer) *album {
	if p != nil {
		return &album{packer: p, packed: map[string]string{}}
	}
	return &album{whole: map[string]*unstructured.Unstructured{}}
}

func (a *album) get(key string) (Sight, bool) {
	if a.packer != nil {
		packed, ok := a.packed[key]
		if !ok {
			return Sight{}, false
		}
		return Sight{key: packed[:len(key)], packed: packed, packer: a.packer}, true
	}
	u, ok := a.whole[key]
	return Sight{key: key, whole: u}, ok
}

// put keeps a sight and returns the one before.
func (a *album) put(s Sight) (old Sight, had bool) {
	old, had = a.get(s.key)
	if a.packer != nil {
		a.packed[s.key] = s.packed
	} else {
		a.whole[s.key] = s.whole
	}
	return old, had
}

// drop forgets an object and returns it.
func (a *album) drop(key string) (old Sight, had bool) {
	old, had = a.get(key)
	delete(a.packed, key)
	delete(a.whole, key)
	return old, had
}

func (a *album) count() int { return len(a.packed) + len(a.whole) }

// each yields all sights, in no order. The one that is yielded may be dropped.
func (a *album) each() iter.Seq[Sight] {
	return func(yield func(Sight) bool) {
		for key, packed := range a.packed {
			if !yield(Sight{key: key, packed: packed, packer: a.packer}) {
				return
			}
		}
		for key, u := range a.whole {
			if !yield(Sight{key: key, whole: u}) {
				return
			}
		}
	}
}
