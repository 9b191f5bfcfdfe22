package apiserver

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ownNames turns the ownership of secure.<field>.create and .remove, which are
// gone once the write is stored, into that of the name that stands there now.
// Without it, appliers would fight over a field that no object has.
func ownNames(obj *unstructured.Unstructured) {
	meta, _ := obj.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	secure, _ := obj.Object["secure"].(map[string]any)
	for i, entry := range entries {
		fields, _, _ := unstructured.NestedFieldNoCopy(asMap(entry), "fieldsV1", "f:secure")
		if len(asMap(fields)) == 0 {
			continue
		}
		own := runtime.DeepCopyJSON(asMap(entry))
		members := asMap(asMap(own["fieldsV1"])["f:secure"])
		for key, value := range members {
			member := asMap(value)
			if member == nil {
				continue
			}
			if _, given := member["f:create"]; given {
				member["f:name"] = map[string]any{}
			}
			delete(member, "f:create")
			delete(member, "f:remove")
			if secure[strings.TrimPrefix(key, "f:")] == nil && key != "." {
				delete(members, key)
			}
		}
		entries[i] = own
	}
}

// asMap answers the object behind a JSON value; nil for any other.
func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}
