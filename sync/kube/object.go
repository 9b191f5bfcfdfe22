package kube

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"limpet/sync/api"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is one version of an object in the cache of an Informer. It does not change,
// and two of them are equal when they are the same version of the same object. Its
// members are read without decoding it: to read a hundred thousand Objects takes
// milliseconds, to decode them all would take hundreds of megabytes.
type Object struct{ cached *cached }

// cached is what the store of an Informer holds: an object as the API has sent it,
// or a compact one. A decoded job takes some thousand bytes; a compact one takes its
// values at the known paths and a handle of the JSON of the rest, which most jobs of
// a kind have in common.
type cached struct {
	whole  *unstructured.Unstructured // nil when compact
	fields string                     // see compact
	rest   unique.Handle[string]
}

// ObjectOf returns an Object that holds u as it is. u must not be changed any more.
func ObjectOf(u *unstructured.Unstructured) Object { return Object{&cached{whole: u}} }

// Key returns namespace/name, or the name alone where there are no namespaces.
func (o Object) Key() string {
	switch {
	case o.cached == nil:
		return ""
	case o.cached.whole != nil:
		return objectKey(o.cached.whole.GetNamespace(), o.cached.whole.GetName())
	}
	_, key, _ := o.cached.split()
	return key
}

// Namespace returns the namespace of the object, "" when it has none.
func (o Object) Namespace() string {
	namespace, _ := splitKey(o.Key())
	return namespace
}

// Name returns the name of the object.
func (o Object) Name() string {
	_, name := splitKey(o.Key())
	return name
}

// UID returns the UID of the object.
func (o Object) UID() string { return o.Text(pathUID) }

// ResourceVersion returns the resource version of the object.
func (o Object) ResourceVersion() string { return o.Text(pathResourceVersion) }

// Created returns when the object was created, by the clock of the server.
func (o Object) Created() time.Time { return api.TimeOfText(o.Text(pathCreated)) }

// Text returns the string at a path, "" when there is none.
func (o Object) Text(p Path) string {
	if v := o.at(p); v.kind == kindText {
		return v.text
	}
	return ""
}

// Number returns the number at a path without its fraction, 0 when there is none.
func (o Object) Number(p Path) int64 {
	switch v := o.at(p); v.kind {
	case kindInt:
		n, _ := strconv.ParseInt(v.text, 10, 64)
		return n
	case kindFloat:
		f, _ := strconv.ParseFloat(v.text, 64)
		return int64(f)
	}
	return 0
}

// Bool returns the boolean at a path, false when there is none.
func (o Object) Bool(p Path) bool {
	v := o.at(p)
	return v.kind == kindBool && v.text == "true"
}

// Unstructured decodes the object. The result must not be changed: it may be the one
// in the cache.
func (o Object) Unstructured() *unstructured.Unstructured {
	switch {
	case o.cached == nil:
		return nil
	case o.cached.whole != nil:
		return o.cached.whole
	}
	return o.cached.decode()
}

func (o Object) sameVersion(uid, resourceVersion string) bool {
	return o.ResourceVersion() == resourceVersion && o.UID() == uid
}

// version identifies one version of one object.
func (o Object) version() string { return o.UID() + " " + o.ResourceVersion() }

func (o Object) at(p Path) value {
	switch {
	case o.cached == nil:
		return value{}
	case o.cached.whole != nil:
		return valueAt(o.cached.whole.Object, p)
	}
	known, _, fields := o.cached.split()
	if p.number >= known {
		return valueAt(o.cached.decode().Object, p)
	}
	for fields != "" {
		var number int
		var v value
		if number, v, fields = nextField(fields); number == p.number {
			return v
		}
	}
	return value{}
}

// compact takes the object apart: its values at the known paths, and the JSON of the
// rest. u must not be used afterwards. Nothing is lost but the form of numbers.
//
//	fields: number of known paths, key, and of each value: path and kind, text
func compact(u *unstructured.Unstructured) *cached {
	meta, _ := u.Object["metadata"].(map[string]any)
	namespace, hasNamespace := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	if name == "" || strings.Contains(namespace+name, "/") || hasNamespace == (namespace == "") {
		return &cached{whole: u} // no server should send it
	}
	delete(meta, "namespace")
	delete(meta, "name")
	paths := knownPaths()
	fields := appendText(binary.AppendUvarint(nil, uint64(len(paths))), objectKey(namespace, name))
	for number, p := range paths {
		parent, member := p.parent(u.Object)
		if v := valueOf(parent[member]); v.kind != kindNone {
			delete(parent, member)
			fields = appendText(binary.AppendUvarint(fields, uint64(number)<<kindBits|uint64(v.kind)), v.text)
		}
	}
	c := &cached{fields: string(fields)}
	rest, err := json.Marshal(u.Object)
	if err != nil {
		return &cached{whole: c.restore(u)}
	}
	c.rest = unique.Make(string(rest))
	return c
}

// lastDecoded is the JSON that was decoded last. Most jobs have it in common.
var lastDecoded atomic.Pointer[decodedRest]

type decodedRest struct {
	rest   unique.Handle[string]
	object map[string]any // not to be changed
}

func (c *cached) decode() *unstructured.Unstructured {
	last := lastDecoded.Load()
	if last == nil || last.rest != c.rest {
		last = &decodedRest{rest: c.rest}
		// It was encoded here, so it can be decoded.
		_ = utiljson.Unmarshal([]byte(c.rest.Value()), &last.object)
		lastDecoded.Store(last)
	}
	return c.restore(&unstructured.Unstructured{Object: runtime.DeepCopyJSON(last.object)})
}

// restore puts the values back that compact has taken out.
func (c *cached) restore(u *unstructured.Unstructured) *unstructured.Unstructured {
	_, key, fields := c.split()
	meta, _ := u.Object["metadata"].(map[string]any)
	namespace, name := splitKey(key)
	meta["name"] = name
	if namespace != "" {
		meta["namespace"] = namespace
	}
	paths := knownPaths()
	for fields != "" {
		var number int
		var v value
		number, v, fields = nextField(fields)
		parent, member := paths[number].parent(u.Object)
		parent[member] = v.decoded()
	}
	return u
}

// split returns how many paths were known when the object was made compact, its key,
// and the values.
func (c *cached) split() (known int, key, fields string) {
	n, fields := cutUvarint(c.fields)
	key, fields = cutText(fields)
	return int(n), key, fields
}

func nextField(fields string) (number int, v value, rest string) {
	head, rest := cutUvarint(fields)
	v.kind = kind(head & (1<<kindBits - 1))
	v.text, rest = cutText(rest)
	return int(head >> kindBits), v, rest
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func cutText(s string) (text, rest string) {
	n, s := cutUvarint(s)
	return s[:n], s[n:]
}

// cutUvarint is binary.Uvarint for a string.
func cutUvarint(s string) (n uint64, rest string) {
	for i := range len(s) {
		n |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return n, s[i+1:]
		}
	}
	return n, ""
}

// kind is the type of a value at a path.
type kind uint8

const (
	kindNone kind = iota // none, or no scalar
	kindText
	kindInt
	kindFloat
	kindBool

	kindBits = 3
)

// value is a scalar with its text in the form of JSON, strings without quotes.
type value struct {
	kind kind
	text string
}

func valueOf(v any) value {
	switch v := v.(type) {
	case string:
		return value{kindText, v}
	case int64:
		return value{kindInt, strconv.FormatInt(v, 10)}
	case float64:
		return value{kindFloat, strconv.FormatFloat(v, 'g', -1, 64)}
	case bool:
		return value{kindBool, strconv.FormatBool(v)}
	}
	return value{}
}

func (v value) decoded() any {
	switch v.kind {
	case kindInt:
		n, _ := strconv.ParseInt(v.text, 10, 64)
		return n
	case kindFloat:
		f, _ := strconv.ParseFloat(v.text, 64)
		return f
	case kindBool:
		return v.text == "true"
	}
	return v.text
}

func valueAt(object map[string]any, p Path) value {
	parent, member := p.parent(object)
	return valueOf(parent[member])
}

// Path leads to a member of an object.
type Path struct {
	names  []string
	number int // in paths
}

// parent returns the object that holds the last member of the path, nil when there
// is none, and the name of that member.
func (p Path) parent(object map[string]any) (parent map[string]any, member string) {
	last := len(p.names) - 1
	for _, name := range p.names[:last] {
		object, _ = object[name].(map[string]any)
	}
	return object, p.names[last]
}

// paths holds all paths that were made. Compact objects keep the values there ready.
var paths struct {
	mu  sync.Mutex // guards all
	all []Path
}

// PathTo returns the path through these member names, from the top of the object.
// It is for variables of a package: a path is never forgotten.
func PathTo(names ...string) Path {
	paths.mu.Lock()
	defer paths.mu.Unlock()
	joined := strings.Join(names, "\x00")
	for _, p := range paths.all {
		if strings.Join(p.names, "\x00") == joined {
			return p
		}
	}
	p := Path{names: names, number: len(paths.all)}
	paths.all = append(paths.all, p)
	return p
}

func knownPaths() []Path {
	paths.mu.Lock()
	defer paths.mu.Unlock()
	return paths.all[:len(paths.all):len(paths.all)]
}

var (
	pathUID             = PathTo("metadata", "uid")
	pathResourceVersion = PathTo("metadata", "resourceVersion")
	pathCreated         = PathTo("metadata", "creationTimestamp")
)

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func splitKey(key string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return namespace, name
	}
	return "", key
}

// client-go reads no more of a cached object than the methods below give.

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (c *cached) GetObjectMeta() metav1.Object { return cachedMeta{o: Object{c}} }

// GetObjectKind implements runtime.Object.
func (c *cached) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (c *cached) DeepCopyObject() runtime.Object { return c }

type cachedMeta struct {
	metav1.Object // nil
	o             Object
}

func (m cachedMeta) GetNamespace() string              { return m.o.Namespace() }
func (m cachedMeta) GetName() string                   { return m.o.Name() }
func (m cachedMeta) GetResourceVersion() string        { return m.o.ResourceVersion() }
func (m cachedMeta) GetAnnotations() map[string]string { return nil }

// cachedList is the answer to a list.
type cachedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*cached
}

// DeepCopyObject implements runtime.Object.
func (l *cachedList) DeepCopyObject() runtime.Object { return l }
