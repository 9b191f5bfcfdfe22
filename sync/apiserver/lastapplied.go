package apiserver

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// lastApplied is where kubectl keeps the file that it applied, whole.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// stripLastApplied takes the secret values out of kubectl's copy of the applied
// file. The members stay with empty values: kubectl finds what was removed from
// a file by comparing the members. A copy that cannot be read is dropped, it
// could hold anything.
func stripLastApplied(obj *unstructured.Unstructured) {
	annotations := obj.GetAnnotations()
	text, ok := annotations[lastApplied]
	if !ok {
		return
	}
	var applied map[string]any
	if json.Unmarshal([]byte(text), &applied) != nil {
		delete(annotations, lastApplied)
		obj.SetAnnotations(annotations)
		return
	}
	changed := false
	if secure, ok := applied["secure"].(map[string]any); ok {
		for _, member := range secure {
			if m, ok := member.(map[string]any); ok && m["create"] != nil {
				delete(m, "create")
				changed = true
			}
		}
	}
	if obj.GetAPIVersion() == "v1" && obj.GetKind() == "Secret" {
		for _, name := range []string{"data", "stringData"} {
			values, _ := applied[name].(map[string]any)
			for key := range values {
				values[key] = ""
				changed = true
			}
		}
	}
	if !changed {
		return
	}
	clean, err := json.Marshal(applied)
	if err != nil {
		delete(annotations, lastApplied)
	} else {
		// kubectl writes a line break at the end.
		annotations[lastApplied] = string(clean) + "\n"
	}
	obj.SetAnnotations(annotations)
}
