package kube

import (
	"strings"
	"sync"
	"time"

	"limpet/sync/api"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Object is an object as an Informer saw it last: a small value that does not
// change. To look at a member of a hundred thousand of them costs milliseconds;
// to make objects of them all would cost hundreds of megabytes.
type Object struct {
	packed string // "" when the object is kept whole
	from   *origin
}

// origin is what a sight is read with.
type origin struct {
	packer *packer
	whole  *unstructured.Unstructured // nil when the object is packed
}

// ObjectOf is the sight of a whole object, which must not be changed any more.
func ObjectOf(u *unstructured.Unstructured) Object {
	return Object{from: &origin{whole: u}}
}

// Path is the way to a member of an object.
type Path struct {
	names  []string
	joined string
	number int // in paths
}

// pathBreak stands between the names of a joined path; no name holds it.
const pathBreak = "\x00"

// paths are all that were made, joined: a shape knows where they lead.
var paths struct {
	mu     sync.Mutex
	joined []string // guarded by mu
}

// PathTo is the path through these member names, from the top of the object.
// Paths are made once, for variables of a package: they are never forgotten.
func PathTo(names ...string) Path {
	p := Path{names: names, joined: strings.Join(names, pathBreak)}
	paths.mu.Lock()
	defer paths.mu.Unlock()
	p.number = len(paths.joined)
	paths.joined = append(paths.joined, p.joined)
	return p
}

// knownPaths are the paths made so far, by number.
func knownPaths() []string {
	paths.mu.Lock()
	defer paths.mu.Unlock()
	return paths.joined[:len(paths.joined):len(paths.joined)]
}

var (
	pathUID     = PathTo("metadata", "uid")
	pathVersion = PathTo("metadata", "resourceVersion")
	pathCreated = PathTo("metadata", "creationTimestamp")
)

// Key is namespace/name, or the name alone where there are no namespaces.
func (s Object) Key() string {
	switch {
	case s.packed != "":
		return keyIn(s.packed)
	case s.from != nil:
		return objectKey(s.from.whole.GetNamespace(), s.from.whole.GetName())
	}
	return ""
}

// Namespace is the namespace of the object, "" for one that has none.
func (s Object) Namespace() string {
	namespace, _ := splitKey(s.Key())
	return namespace
}

// Name is the name of the object.
func (s Object) Name() string {
	_, name := splitKey(s.Key())
	return name
}

// UID is the identity of the object.
func (s Object) UID() string { return s.Text(pathUID) }

// ResourceVersion is the resource version of the object.
func (s Object) ResourceVersion() string { return s.Text(pathVersion) }

// Created is when the object was made by the server's clock.
func (s Object) Created() time.Time {
	v := s.member(pathCreated)
	switch v.tag {
	case tagTime:
		return time.Unix(v.number, 0)
	case tagText:
		return api.TimeOfText(v.text)
	}
	return time.Time{}
}

// Text is the string at a path, "" when there is none.
func (s Object) Text(p Path) string { return s.member(p).String() }

// Number is the number at a path, its fraction cut off, 0 when there is none.
func (s Object) Number(p Path) int64 {
	switch v := s.member(p); v.tag {
	case tagInt:
		return v.number
	case tagFloat:
		return int64(v.float)
	}
	return 0
}

// Bool is the truth at a path, false when there is none.
func (s Object) Bool(p Path) bool { return s.member(p).tag == tagTrue }

// Unstructured is the whole object. It must not be changed: it may be that of the
// Informer.
func (s Object) Unstructured() *unstructured.Unstructured {
	switch {
	case s.packed != "":
		return s.from.packer.unpack(s.packed)
	case s.from != nil:
		return s.from.whole
	}
	return nil
}

// member finds the value at a path that is neither an object nor a list.
func (s Object) member(p Path) scalar {
	switch {
	case s.packed != "":
		return s.from.packer.find(s.packed, p)
	case s.from != nil:
		return memberOf(s.from.whole.Object, p)
	}
	return scalar{}
}

func memberOf(object map[string]any, p Path) scalar {
	var at any = object
	for _, name := range p.names {
		fields, ok := at.(map[string]any)
		if !ok {
			return scalar{}
		}
		at = fields[name]
	}
	switch v := at.(type) {
	case string:
		return scalar{tag: tagText, text: v}
	case bool:
		if v {
			return scalar{tag: tagTrue}
		}
		return scalar{tag: tagFalse}
	case int64:
		return scalar{tag: tagInt, number: v}
	case float64:
		return scalar{tag: tagFloat, float: v}
	}
	return scalar{}
}

// identity tells one state of one object from all others.
func (s Object) identity() string { return s.UID() + " " + s.ResourceVersion() }

func splitKey(key string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return namespace, name
	}
	return "", key
}
