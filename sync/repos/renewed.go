package repos

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// Uses is told of what a Repository or a Connection uses besides itself, such as
// Secrets, before any of it is read, so that no change between the two is missed;
// obj is nil when it is gone or somebody else's. Who is told calls Renewed when some
// of it has changed. It must not block for long.
type Uses func(k Key, obj *unstructured.Unstructured)

// uses tells what an object uses.
func (l *loop) uses(k Key, obj *unstructured.Unstructured) {
	if l.told != nil {
		l.told(k, obj)
	}
}

// unused tells that an object uses nothing any more.
func (l *loop) unused(k Key) {
	l.uses(k, nil)
	l.wished(k)
}

// wish is that the health of an object is checked before its time.
type wish int

const (
	ifIll  wish = iota + 1 // what it suffers from may be over
	anyway                 // what it works with now may be wrong
)

// due says that the wish is for a check of an object with this health.
func (w wish) due(h api.HealthState) bool { return w == anyway || w == ifIll && !h.Healthy }

// Recheck has the health of a Repository checked now if it is not in order: what
// it suffers from may be over, such as missing credentials. It never blocks.
func (c *Controller) Recheck(namespace, name string) {
	c.wish(Key{namespace, name}, ifIll)
	c.Wake(namespace, name)
}

// Renewed has the health of a Repository checked now, also when it is in order:
// what it uses, such as its credentials, is not what it was. It never blocks.
func (c *Controller) Renewed(namespace, name string) {
	c.wish(Key{namespace, name}, anyway)
	c.Wake(namespace, name)
}

// Recheck has a Connection checked now if it is not in order. It never blocks.
func (c *Connections) Recheck(namespace, name string) {
	k := Key{namespace, name}
	c.wish(k, ifIll)
	c.add(k)
}

// Renewed has a Connection checked now, because its credentials are not what they
// were. It never blocks.
func (c *Connections) Renewed(namespace, name string) {
	k := Key{namespace, name}
	c.wish(k, anyway)
	c.add(k)
}

// wish notes that the health of an object is to be checked. It is taken by the next
// look that comes so far.
func (l *loop) wish(k Key, w wish) {
	l.wishMu.Lock()
	defer l.wishMu.Unlock()
	if w > l.wishes[k] {
		l.wishes[k] = w
	}
}

// wished takes the wish off that there is for an object, before anything is read of
// what it uses: what changes afterwards is a wish of its own.
func (l *loop) wished(k Key) wish {
	l.wishMu.Lock()
	defer l.wishMu.Unlock()
	w := l.wishes[k]
	delete(l.wishes, k)
	return w
}
