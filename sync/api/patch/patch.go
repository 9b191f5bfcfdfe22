// Package patch builds JSON patches (RFC 6902) of objects of an API.
package patch

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// MediaType is the content type of a JSON patch.
const MediaType = "application/json-patch+json"

// Op is one operation of RFC 6902.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Add sets a member. It replaces the member that exists; its parent must exist.
func Add(path string, value any) Op { return Op{"add", path, value} }

// Test has the server refuse a patch where the value at a path is another one.
func Test(path string, value any) Op { return Op{"test", path, value} }

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Escape returns a name as one segment of a path.
func Escape(name string) string { return escaper.Replace(name) }

// Version has the server refuse a patch of any other version than that of obj.
func Version(obj *unstructured.Unstructured) Op {
	return Test("/metadata/resourceVersion", obj.GetResourceVersion())
}

// Guard begins a patch of one top-level member of obj, which it creates where obj has none. The
// patch fits no other version.
func Guard(obj *unstructured.Unstructured, member string) []Op {
	ops := []Op{Version(obj)}
	if _, there := obj.Object[member].(map[string]any); !there {
		ops = append(ops, Add("/"+member, map[string]any{}))
	}
	return ops
}
