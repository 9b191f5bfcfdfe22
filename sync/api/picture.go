package api

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// picture is where client-go's reflector puts what it hears: it keeps the
// objects, packed or whole, and tells the handlers. A change is in the picture
// before the handlers hear of it, and they have returned before the next: so
// nothing waits in between, whose size nobody bounds.
type picture struct {
	packer *packer // nil = objects are kept whole

	tell     sync.Mutex // guards handlers and the order of what they are told
	handlers []Handler

	mu     sync.RWMutex // guards the maps below, one of which is in use
	packed map[string]string
	whole  map[string]*unstructured.Unstructured

	once   sync.Once
	synced chan struct{} // closed when the picture has been complete once
}

func newPicture(packs bool) *picture {
	p := &picture{synced: make(chan struct{})}
	if packs {
		p.packer, p.packed = newPacker(), map[string]string{}
	} else {
		p.whole = map[string]*unstructured.Unstructured{}
	}
	return p
}

// held is a sight on its way through the reflector, which asks for no more of
// an object than what is defined below.
type held struct {
	metav1.Object // nil
	Sight
}

func (h *held) GetNamespace() string              { return h.Namespace() }
func (h *held) GetName() string                   { return h.Name() }
func (h *held) GetResourceVersion() string        { return h.Version() }
func (h *held) GetAnnotations() map[string]string { return nil }
func (h *held) GetObjectKind() schema.ObjectKind  { return schema.EmptyObjectKind }
func (h *held) DeepCopyObject() runtime.Object    { return new(*h) }

// heldList is a list of the server, packed page by page.
type heldList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*held
}

// DeepCopyObject implements runtime.Object. Nothing of a list is ever changed.
func (l *heldList) DeepCopyObject() runtime.Object { return new(*l) }

// hold makes the sight of an object that has come from the server. An object
// that the picture has already is not kept twice.
func (p *picture) hold(u *unstructured.Unstructured) *held {
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	if p.packer == nil {
		return &held{Sight: SightOf(u)}
	}
	key, packed := p.packer.pack(u)
	p.mu.RLock()
	known := p.packed[key]
	p.mu.RUnlock()
	if known == packed {
		key, packed = known[:len(key)], known
	}
	return &held{Sight: Sight{key: key, packed: packed, packer: p.packer}}
}

func (p *picture) get(key string) (Sight, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.locked(key)
}

// locked is get with mu held.
func (p *picture) locked(key string) (Sight, bool) {
	if p.packer != nil {
		packed, ok := p.packed[key]
		if !ok {
			return Sight{}, false
		}
		return Sight{key: packed[:len(key)], packed: packed, packer: p.packer}, true
	}
	u, ok := p.whole[key]
	return Sight{key: key, whole: u}, ok
}

// put keeps a sight and returns the one before.
func (p *picture) put(s Sight) (Sight, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, had := p.locked(s.key)
	if p.packer != nil {
		p.packed[s.key] = s.packed
	} else {
		p.whole[s.key] = s.whole
	}
	return old, had
}

func (p *picture) drop(key string) (Sight, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, had := p.locked(key)
	delete(p.packed, key)
	delete(p.whole, key)
	return old, had
}

func (p *picture) count() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.packed) + len(p.whole)
}

// all returns every sight. The cost is a slice; what it refers to is shared.
func (p *picture) all() []Sight {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]Sight, 0, len(p.packed)+len(p.whole))
	for key, packed := range p.packed {
		out = append(out, Sight{key: key, packed: packed, packer: p.packer})
	}
	for key, u := range p.whole {
		out = append(out, Sight{key: key, whole: u})
	}
	return out
}

// join adds a handler, which first receives the picture as it is.
func (p *picture) join(h Handler) {
	p.tell.Lock()
	defer p.tell.Unlock()
	for _, s := range p.all() {
		h.added(s)
	}
	p.handlers = append(p.handlers, h)
}

// Add implements cache.ReflectorStore.
func (p *picture) Add(obj any) error { return p.Update(obj) }

// Update implements cache.ReflectorStore.
func (p *picture) Update(obj any) error {
	p.tell.Lock()
	defer p.tell.Unlock()
	if h, ok := obj.(*held); ok {
		p.set(h.Sight)
	}
	return nil
}

// set is called with tell held. What is known already is told to nobody.
func (p *picture) set(s Sight) {
	old, had := p.put(s)
	switch {
	case !had:
		for _, h := range p.handlers {
			h.added(s)
		}
	case old.identity() != s.identity():
		for _, h := range p.handlers {
			h.updated(old, s)
		}
	}
}

// Delete implements cache.ReflectorStore. The handlers receive the last state.
func (p *picture) Delete(obj any) error {
	p.tell.Lock()
	defer p.tell.Unlock()
	if h, ok := obj.(*held); ok {
		if _, had := p.drop(h.key); had {
			p.removed(h.Sight)
		}
	}
	return nil
}

// removed is called with tell held.
func (p *picture) removed(s Sight) {
	for _, h := range p.handlers {
		h.deleted(s)
	}
}

// Replace implements cache.ReflectorStore: list is the whole picture.
func (p *picture) Replace(list []any, _ string) error {
	p.tell.Lock()
	defer p.tell.Unlock()
	for _, obj := range list {
		if h, ok := obj.(*held); ok {
			p.set(h.Sight)
		}
	}
	if p.count() > len(list) {
		is := make(map[string]struct{}, len(list))
		for _, obj := range list {
			if h, ok := obj.(*held); ok {
				is[h.key] = struct{}{}
			}
		}
		for _, s := range p.all() {
			if _, ok := is[s.key]; !ok {
				p.drop(s.key)
				p.removed(s)
			}
		}
	}
	p.once.Do(func() { close(p.synced) })
	return nil
}

// Resync implements cache.ReflectorStore.
func (p *picture) Resync() error { return nil }

var _ cache.ReflectorStore = (*picture)(nil)
