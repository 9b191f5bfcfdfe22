package api

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Label is one label of an object, "" when it has none. GetLabels would copy all of them.
func Label(u *unstructured.Unstructured, name string) string {
	return textAt(u, "metadata", "labels", name)
}

// Annotation is one annotation of an object, "" when it has none. GetAnnotations would copy all of them.
func Annotation(u *unstructured.Unstructured, name string) string {
	return textAt(u, "metadata", "annotations", name)
}

// Meta is a text member of the metadata of an object, as "uid", "" when it has none.
func Meta(u *unstructured.Unstructured, member string) string { return textAt(u, "metadata", member) }

// Spec is a text member of the spec of an object, "" when it has none.
func Spec(u *unstructured.Unstructured, member string) string { return textAt(u, "spec", member) }

func textAt(u *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(u.Object, path...)
	return text
}

// SetLabel sets a label of an object, or with "" removes it.
func SetLabel(u *unstructured.Unstructured, name, value string) { setTag(u, "labels", name, value) }

// SetAnnotation sets an annotation of an object, or with "" removes it.
func SetAnnotation(u *unstructured.Unstructured, name, value string) {
	setTag(u, "annotations", name, value)
}

// setTag leaves no empty member behind.
func setTag(u *unstructured.Unstructured, member, name, value string) {
	meta, _ := u.Object["metadata"].(map[string]any)
	tags, _ := meta[member].(map[string]any)
	switch _, has := tags[name]; {
	case value == "" && has && len(tags) == 1:
		delete(meta, member)
	case value == "":
		delete(tags, name)
	default:
		if u.Object == nil {
			u.Object = map[string]any{}
		}
		_ = unstructured.SetNestedField(u.Object, value, "metadata", member, name) // fails only where metadata is no object
	}
}
