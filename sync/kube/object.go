package kube

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"
	"unique"

	"limpet/sync/api"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object is one version of an object in the cache of an Informer. It does not change, and two of
// them are equal when they are the same version of the same object. Its members are read without
// decoding it: to read a hundred thousand Objects takes milliseconds, to decode them all would take
// hundreds of megabytes.
type Object struct{ cached *cached }

// cached is what the store of an Informer holds: an object as the API has sent it, or a compact
// one. A decoded job takes some thousand bytes; a compact one takes its values at the known paths
// and a handle of the JSON of the rest, which most jobs of a kind have in common.
type cached struct {
	whole *unstructured.Unstructured // nil when compact
	// fields holds the key and the JSON of the scalar at each known path, or nothing,
	// a line each. Lines without a scalar are left out at the end.
	fields string
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
	key, _, _ := strings.Cut(o.cached.fields, "\n")
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
	if o.cached != nil && o.cached.whole != nil {
		text, _ := p.in(o.cached.whole.Object).(string)
		return text
	}
	raw := o.at(p)
	if !strings.HasPrefix(raw, `"`) {
		return ""
	}
	return unquote(raw)
}

// unquote decodes a string that was encoded here.
func unquote(raw string) (text string) {
	if text = raw[1 : len(raw)-1]; !strings.Contains(text, `\`) {
		return text
	}
	_ = json.Unmarshal([]byte(raw), &text)
	return text
}

// Number returns the number at a path without its fraction, 0 when there is none.
func (o Object) Number(p Path) int64 {
	raw := o.at(p)
	if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
		return n
	}
	f, _ := strconv.ParseFloat(raw, 64)
	return int64(f)
}

// Bool returns the boolean at a path, false when there is none.
func (o Object) Bool(p Path) bool { return o.at(p) == "true" }

// Scalar returns the scalar at a path as text, "" when there is none.
func (o Object) Scalar(p Path) string {
	if text := o.Text(p); text != "" {
		return text
	}
	return strings.Trim(o.at(p), `"`)
}

// Unstructured decodes the object. The result must not be changed: it may be the one in the cache.
func (o Object) Unstructured() *unstructured.Unstructured {
	switch {
	case o.cached == nil:
		return nil
	case o.cached.whole != nil:
		return o.cached.whole
	}
	u := new(unstructured.Unstructured)
	_ = utiljson.Unmarshal([]byte(o.cached.rest.Value()), &u.Object) // it was encoded here, so it can be decoded
	return o.cached.restore(u)
}

// version identifies one version of one object.
func (o Object) version() string { return versionText(o.UID(), o.ResourceVersion()) }

// at returns the JSON of the scalar at a path, "" when there is none.
func (o Object) at(p Path) string {
	switch {
	case o.cached == nil:
		return ""
	case o.cached.whole != nil:
		return string(appendScalar(nil, p.in(o.cached.whole.Object)))
	}
	raw := o.cached.fields
	for range p.number + 1 {
		_, raw, _ = strings.Cut(raw, "\n")
	}
	raw, _, _ = strings.Cut(raw, "\n")
	return raw
}

// compact takes the object apart: its values at the known paths, and the JSON of the
// rest. u must not be used afterwards.
func compact(u *unstructured.Unstructured) *cached {
	meta, _ := u.Object["metadata"].(map[string]any)
	namespace, hasNamespace := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	if name == "" || strings.ContainsAny(namespace+name, "/\n") || hasNamespace == (namespace == "") {
		return &cached{whole: u} // no server should send it
	}
	delete(meta, "namespace")
	delete(meta, "name")
	fields := []byte(objectKey(namespace, name))
	for _, p := range knownPaths() {
		parent, member := p.parent(u.Object)
		end := len(fields) + 1
		if fields = appendScalar(append(fields, '\n'), parent[member]); len(fields) > end {
			delete(parent, member)
		}
	}
	c := &cached{fields: strings.TrimRight(string(fields), "\n")}
	rest, err := json.Marshal(u.Object)
	if err != nil {
		return &cached{whole: c.restore(u)}
	}
	c.rest = unique.Make(string(rest))
	return c
}

// restore puts the values back that compact has taken out.
func (c *cached) restore(u *unstructured.Unstructured) *unstructured.Unstructured {
	lines := strings.Split(c.fields, "\n")
	meta, _ := u.Object["metadata"].(map[string]any)
	namespace, name := splitKey(lines[0])
	meta["name"] = name
	if namespace != "" {
		meta["namespace"] = namespace
	}
	paths := knownPaths()
	for n, raw := range lines[1:] {
		var value any
		switch {
		case raw == "":
			continue
		case raw[0] == '"':
			value = unquote(raw)
		default:
			_ = utiljson.Unmarshal([]byte(raw), &value)
		}
		parent, member := paths[n].parent(u.Object)
		parent[member] = value
	}
	return u
}

// appendScalar appends a scalar as JSON, and nothing for any other value. It keeps the type of
// numbers.
func appendScalar(out []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		if plain(v) {
			return append(append(append(out, '"'), v...), '"')
		}
	case bool, int64, float64:
	default:
		return out
	}
	raw, err := json.Marshal(v)
	if _, isFloat := v.(float64); isFloat && err == nil && !strings.ContainsAny(string(raw), ".e") {
		raw = append(raw, ".0"...)
	}
	return append(out, raw...)
}

// plain reports whether a string is itself between the quotes of its JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			return false
		}
	}
	return true
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

func (p Path) in(object map[string]any) any {
	parent, member := p.parent(object)
	return parent[member]
}

// paths holds all paths that were made. Compact objects keep the values there ready.
var paths struct {
	mu  sync.Mutex // guards all
	all []Path
}

// PathTo returns the path through these member names, from the top of the object. It is for
// variables of a package: a path is never forgotten, and one that is made later finds nothing in an
// object that is compact already.
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
	i := strings.IndexByte(key, '/')
	return key[:max(i, 0)], key[i+1:]
}

// GetObjectKind returns none: client-go reads nothing of the objects in a list.
func (c *cached) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (c *cached) DeepCopyObject() runtime.Object { return c }

// cachedList is the answer to a list.
type cachedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*cached
}

func (l *cachedList) DeepCopyObject() runtime.Object { return l }
