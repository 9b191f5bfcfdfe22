package state

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"limpet/state/frame"
)

// ObjectKey names an object of the embedded API. Resource is "group/plural", for the core group
// "/plural". No part may hold a zero byte, and only the namespace may be empty.
type ObjectKey struct {
	Resource  string
	Namespace string
	Name      string
}

func (k ObjectKey) String() string { return k.Resource + " " + k.Namespace + "/" + k.Name }

// Object is an object with the revision of its last change. Data belongs to the caller and is never
// changed by the store.
type Object struct {
	Key      ObjectKey
	Revision uint64
	Data     []byte
}

// SecretWrite seals Plain under Name, or deletes that name.
type SecretWrite struct {
	Name   string
	Plain  []byte
	Delete bool
}

// Mutation is the change of one object. Exactly one of Data, Delete and Keep is given. Secrets and
// the changes of other objects are written in the same transaction: all of it, or nothing.
type Mutation struct {
	Data    []byte
	Tail    Tail // the end of Data, if Store.Tail has compressed it
	Delete  bool
	Keep    bool // nothing to write: the object keeps its revision and no event is published
	Secrets []SecretWrite
	Also    []Change
}

// Tail is the end of an object in its stored form.
type Tail struct {
	size   int // bytes before they were compressed
	packed []byte
}

// Tail compresses data from a byte on ahead of a Mutation, which other writes wait for. The zero
// Tail is as good.
func (s *Store) Tail(data []byte, from int) (Tail, error) {
	size := len(data) - from
	packed, err := s.tails.Pack(data[from:])
	if err != nil || len(packed) >= size {
		return Tail{}, err
	}
	return Tail{size, packed}, nil
}

// ReadTail returns the data of a Tail.
func (s *Store) ReadTail(t Tail) ([]byte, error) { return s.tails.Unpack(nil, t.packed) }

// Size returns the number of bytes before they were compressed, 0 of the zero Tail.
func (t Tail) Size() int { return t.size }

// Stored returns the number of bytes after it.
func (t Tail) Stored() int { return len(t.packed) }

// Change is the change of an object by a function, as Mutate takes it.
type Change struct {
	Key ObjectKey
	Fn  func(cur *Object, rev uint64) (Mutation, error)
}

// Types of events, as in the API's watches.
const (
	EventAdded    = "ADDED"
	EventModified = "MODIFIED"
	EventDeleted  = "DELETED"
)

// ObjectEvent is one committed change. For EventDeleted Object holds the last data and the revision
// of the deletion.
type ObjectEvent struct {
	Type     string
	Object   Object
	Previous []byte // data before the change; nil for EventAdded
}

// Mutate changes one object. fn sees the present one, nil when absent, and the revision that the
// result will carry. It runs in the writer's goroutine: it must be pure and quick, must not call
// the store, and may run again. Its error is returned as it is and nothing is written. Deleting
// what is absent gives ErrNotFound. Mutate returns the object as it is afterwards: for a deletion
// the last data with the revision of the deletion, for Keep of an absent one the zero value.
func (s *Store) Mutate(ctx context.Context, key ObjectKey, fn func(cur *Object, rev uint64) (Mutation, error)) (Object, error) {
	k, err := key.bytes()
	if err != nil {
		return Object{}, err
	}
	var out Object
	var refusal *mutateError
	err = s.write(ctx, func(t *txn) (err error) {
		out, err = t.mutate(s, key, k, fn)
		refusal = nil
		if e, ok := err.(*mutateError); ok {
			refusal = e
		}
		return err
	})
	switch {
	case err == nil:
		return out, nil
	case refusal == nil:
		return Object{}, err
	case refusal.stack != nil:
		panic(refusal)
	}
	return Object{}, refusal.err
}

func (t *txn) mutate(s *Store, key ObjectKey, k []byte, fn func(*Object, uint64) (Mutation, error)) (Object, error) {
	cur, err := t.object(&s.objects, key, k)
	if err != nil {
		return Object{}, err
	}
	rev := t.m.Revision + 1
	var seen *Object
	if cur != nil {
		seen = new(*cur)
	}
	m, err := recovered(func() (Mutation, error) { return fn(seen, rev) })
	if err != nil {
		return Object{}, err
	}
	change, err := m.change(cur, Object{Key: key, Revision: rev, Data: m.Data})
	if err != nil {
		return Object{}, err
	}
	for _, w := range m.Secrets {
		if err := t.putSecret(s, w); err != nil {
			return Object{}, err
		}
	}
	switch change.Type {
	case "":
	case EventDeleted:
		err = t.remove(frame.Objects, k)
	default:
		err = t.putObject(&s.objects, k, m, rev)
	}
	if err != nil {
		return Object{}, err
	}
	if change.Type != "" {
		t.m.Revision = rev
		t.events = append(t.events, change)
	}
	for _, other := range m.Also {
		k, err := other.Key.bytes()
		if err == nil {
			_, err = t.mutate(s, other.Key, k, other.Fn)
		}
		if err != nil {
			return Object{}, err
		}
	}
	return change.Object, nil
}

// putObject writes an object in its stored form.
func (t *txn) putObject(c *frame.Compression, k []byte, m Mutation, rev uint64) error {
	if len(m.Data) > frame.MaxBody {
		return fmt.Errorf("write object of %d bytes: larger than %d", len(m.Data), frame.MaxBody)
	}
	pack := c.Pack
	if m.Tail.size > 0 {
		pack = c.Frame
	}
	stored, err := pack(m.Data[:len(m.Data)-m.Tail.size])
	if err != nil {
		return err
	}
	return t.putStamped(frame.Objects, k, append(stored, m.Tail.packed...), rev)
}

// change returns the event of a mutation of cur; its type is empty when nothing changes.
func (m Mutation) change(cur *Object, next Object) (ObjectEvent, error) {
	switch {
	case m.Keep && cur == nil:
		return ObjectEvent{}, nil
	case m.Keep:
		return ObjectEvent{Object: *cur}, nil
	case m.Delete && cur == nil:
		return ObjectEvent{}, fmt.Errorf("delete %s: %w", next.Key, ErrNotFound)
	case m.Delete:
		next.Data = cur.Data
		return ObjectEvent{Type: EventDeleted, Object: next, Previous: cur.Data}, nil
	case m.Data == nil:
		return ObjectEvent{}, fmt.Errorf("write %s: mutation without data", next.Key)
	case cur == nil:
		return ObjectEvent{Type: EventAdded, Object: next}, nil
	}
	return ObjectEvent{Type: EventModified, Object: next, Previous: cur.Data}, nil
}

// Object returns one object, or ErrNotFound.
func (s *Store) Object(ctx context.Context, key ObjectKey) (Object, error) {
	k, err := key.bytes()
	if err != nil {
		return Object{}, err
	}
	return read(ctx, s, func(v view) (Object, error) {
		o, err := v.object(&s.objects, key, k)
		if err != nil {
			return Object{}, err
		}
		if o == nil {
			return Object{}, fmt.Errorf("%s: %w", key, ErrNotFound)
		}
		return *o, nil
	})
}

func (v view) object(c *frame.Compression, key ObjectKey, k []byte) (*Object, error) {
	f, ok, err := v.get(frame.Objects, k)
	if err != nil || !ok {
		return nil, err
	}
	data, err := c.Unpack(k, f.Body)
	if err != nil {
		return nil, err
	}
	return &Object{Key: key, Revision: f.Stamp, Data: data}, nil
}

// ObjectQuery selects objects of one resource.
type ObjectQuery struct {
	Resource  string
	Namespace string // empty = all namespaces
	After     string // ObjectPage.Next of the page before
	Limit     int    // 0 = all
}

// ObjectPage is a list that one transaction saw. Items are ordered by namespace and name.
type ObjectPage struct {
	Items    []Object
	Revision uint64 // of the file at the time of the list
	Next     string // cursor of the next page; empty at the end
}

// Objects lists objects. Pages after the first show the objects of their own time.
func (s *Store) Objects(ctx context.Context, q ObjectQuery) (ObjectPage, error) {
	prefix, from, err := q.bounds()
	if err != nil {
		return ObjectPage{}, err
	}
	return read(ctx, s, func(v view) (page ObjectPage, err error) {
		m, err := v.meta()
		if err != nil {
			return page, err
		}
		page.Revision = m.Revision
		err = v.scan(ctx, frame.Objects, prefix, from, func(k []byte, f frame.Frame) (bool, error) {
			if q.Limit > 0 && len(page.Items) == q.Limit {
				last, err := page.Items[q.Limit-1].Key.bytes()
				page.Next = base64.RawURLEncoding.EncodeToString(last)
				return false, err
			}
			key, err := parseObjectKey(k)
			if err != nil {
				return false, err
			}
			data, err := s.objects.Unpack(k, f.Body)
			page.Items = append(page.Items, Object{Key: key, Revision: f.Stamp, Data: data})
			return err == nil, err
		})
		return page, err
	})
}

// bounds returns the prefix of the keys and where to begin.
func (q ObjectQuery) bounds() (prefix, from []byte, err error) {
	if q.Resource == "" || strings.ContainsRune(q.Resource+q.Namespace, 0) {
		return nil, nil, fmt.Errorf("list objects: bad resource %q or namespace %q", q.Resource, q.Namespace)
	}
	prefix = []byte(q.Resource + "\x00")
	if q.Namespace != "" {
		prefix = append(prefix, q.Namespace+"\x00"...)
	}
	if q.After == "" {
		return prefix, prefix, nil
	}
	last, err := base64.RawURLEncoding.DecodeString(q.After)
	if err != nil || !bytes.HasPrefix(last, prefix) {
		return nil, nil, fmt.Errorf("list objects: %q is not a cursor of this list", q.After)
	}
	return prefix, append(last, 0), nil
}

func (k ObjectKey) bytes() ([]byte, error) {
	if k.Resource == "" || k.Name == "" || strings.ContainsRune(k.Resource+k.Namespace+k.Name, 0) {
		return nil, fmt.Errorf("bad object key %q", k)
	}
	return []byte(k.Resource + "\x00" + k.Namespace + "\x00" + k.Name), nil
}

func parseObjectKey(raw []byte) (ObjectKey, error) {
	parts := bytes.SplitN(raw, []byte{0}, 3)
	if len(parts) != 3 {
		return ObjectKey{}, frame.Corrupt("object key %q", raw)
	}
	return ObjectKey{Resource: string(parts[0]), Namespace: string(parts[1]), Name: string(parts[2])}, nil
}
