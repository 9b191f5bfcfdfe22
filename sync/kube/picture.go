package kube

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// picture is where client-go's reflector puts what it hears: it keeps the
// objects, packed or whole, and tells the handlers. A change is in the picture
// before the handlers hear of it, and they have returned before the next: so
// nothing waits in between, whose size nobody bounds. Of the first objects all
// are in the picture before the handlers hear of one.
type picture struct {
	from *origin // of packed objects; nil = they are kept whole
	seen func(*unstructured.Unstructured)

	tell     sync.Mutex // guards handlers and the order of what they are told
	handlers []Handler

	mu  sync.RWMutex // guards now; who changes it holds tell as well
	now *album

	once   sync.Once
	synced chan struct{} // closed when the picture has been complete once
}

func newPicture(packs bool) *picture {
	p := &picture{synced: make(chan struct{})}
	if packs {
		p.from = &origin{packer: newPacker()}
	}
	p.now = newAlbum(p.from)
	return p
}

// held is a sight on its way through the reflector, which asks for no more of
// an object than what is defined below.
type held struct {
	metav1.Object // nil
	obj           Object
}

func (h *held) GetNamespace() string              { return h.obj.Namespace() }
func (h *held) GetName() string                   { return h.obj.Name() }
func (h *held) GetResourceVersion() string        { return h.obj.ResourceVersion() }
func (h *held) GetAnnotations() map[string]string { return nil }
func (h *held) GetObjectKind() schema.ObjectKind  { return schema.EmptyObjectKind }
func (h *held) DeepCopyObject() runtime.Object    { return new(*h) }

// draft is a new picture on its way through the reflector, to which it is one
// object: a crowd would otherwise be kept once more in stores of the reflector.
type draft struct {
	metav1.Object // nil
	album         *album
}

func (d *draft) GetNamespace() string              { return "" }
func (d *draft) GetName() string                   { return "draft" }
func (d *draft) GetResourceVersion() string        { return "" }
func (d *draft) GetAnnotations() map[string]string { return nil }
func (d *draft) GetObjectKind() schema.ObjectKind  { return schema.EmptyObjectKind }
func (d *draft) DeepCopyObject() runtime.Object    { return new(*d) }

// draftList is the answer to a list.
type draftList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*draft // one
}

// DeepCopyObject implements runtime.Object. Nothing of a list is ever changed.
func (l *draftList) DeepCopyObject() runtime.Object { return new(*l) }

// takes keeps what an event tells of an object.
func (d *draft) takes(e watch.Event) bool {
	h, ok := e.Object.(*held)
	if !ok {
		return false
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		d.album.put(h.obj)
	case watch.Deleted:
		d.album.drop(h.obj.Key())
	}
	return true
}

func (p *picture) newDraft() *draft { return &draft{album: newAlbum(p.from)} }

// hold makes the sight of an object that has come from the server. An object
// that the picture has already is not kept twice.
func (p *picture) hold(u *unstructured.Unstructured) *held {
	if p.seen != nil {
		p.seen(u)
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	if p.from == nil {
		return &held{obj: ObjectOf(u)}
	}
	s := Object{packed: p.from.packer.pack(u), from: p.from}
	if known, _ := p.get(s.Key()); known.packed == s.packed {
		return &held{obj: known}
	}
	return &held{obj: s}
}

func (p *picture) get(key string) (Object, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.now.get(key)
}

func (p *picture) put(s Object) (old Object, had bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.put(s)
}

func (p *picture) drop(key string) (old Object, had bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.drop(key)
}

// all returns every sight. The cost is a slice; what it refers to is shared.
func (p *picture) all() []Object {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.AppendSeq(make([]Object, 0, p.now.count()), p.now.each())
}

// join adds a handler, which first receives the picture as it is.
func (p *picture) join(h Handler) {
	p.tell.Lock()
	defer p.tell.Unlock()
	h.listing(true)
	for s := range p.now.each() {
		h.added(s)
	}
	h.listing(false)
	p.handlers = append(p.handlers, h)
}

// Add implements cache.ReflectorStore.
func (p *picture) Add(obj any) error { return p.Update(obj) }

// Update implements cache.ReflectorStore.
func (p *picture) Update(obj any) error {
	p.tell.Lock()
	defer p.tell.Unlock()
	if h, ok := obj.(*held); ok {
		p.set(h.obj)
	}
	return nil
}

// set is called with tell held. What is known already is told to nobody.
func (p *picture) set(s Object) {
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
		if _, had := p.drop(h.obj.Key()); had {
			p.removed(h.obj)
		}
	}
	return nil
}

// removed is called with tell held.
func (p *picture) removed(s Object) {
	for _, h := range p.handlers {
		h.deleted(s)
	}
}

// Replace implements cache.ReflectorStore: list has one draft.
func (p *picture) Replace(list []any, _ string) error {
	p.tell.Lock()
	defer p.tell.Unlock()
	for _, obj := range list {
		if d, ok := obj.(*draft); ok {
			p.listing(true)
			p.follow(d.album)
			p.listing(false)
		}
	}
	p.once.Do(func() { close(p.synced) })
	return nil
}

// listing is called with tell held.
func (p *picture) listing(on bool) {
	for _, h := range p.handlers {
		h.listing(on)
	}
}

// follow makes the picture like another one, which is used up. It is called with
// tell held.
func (p *picture) follow(next *album) {
	if p.now.count() == 0 {
		p.mu.Lock()
		p.now = next
		p.mu.Unlock()
		for s := range next.each() {
			for _, h := range p.handlers {
				h.added(s)
			}
		}
		return
	}
	for s := range next.each() {
		p.set(s)
	}
	for s := range p.now.each() {
		key := s.Key()
		if _, ok := next.get(key); !ok {
			p.drop(key)
			p.removed(s)
		}
	}
}

// Resync implements cache.ReflectorStore.
func (p *picture) Resync() error { return nil }

var _ cache.ReflectorStore = (*picture)(nil)
