package api

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Label is one label of an object, "" when it has none. GetLabels would copy all
// of them.
func Label(u *unstructured.Unstructured, name string) string { return tag(u, "labels", name) }

// Annotation is one annotation of an object, "" when it has none. GetAnnotations
// would copy all of them.
func Annotation(u *unstructured.Unstructured, name string) string {
	return tag(u, "annotations", name)
}

// Meta is a text member of the metadata of an object, as "uid", "" when it has
// none.
func Meta(u *unstructured.Unstructured, member string) string {
	meta, _ := u.Object["metadata"].(map[string]any)
	text, _ := meta[member].(string)
	return text
}

// Spec is a text member of the spec of an object, "" when it has none.
func Spec(u *unstructured.Unstructured, member string) string {
	spec, _ := u.Object["spec"].(map[string]any)
	text, _ := spec[member].(string)
	return text
}

func tag(u *unstructured.Unstructured, member, name string) string {
	meta, _ := u.Object["metadata"].(map[string]any)
	tags, _ := meta[member].(map[string]any)
	text, _ := tags[name].(string)
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
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	meta, _ := u.Object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		u.Object["metadata"] = meta
	}
	tags, _ := meta[member].(map[string]any)
	switch {
	case value != "" && tags == nil:
		meta[member] = map[string]any{name: value}
	case value != "":
		tags[name] = value
	default:
		delete(tags, name)
		if len(tags) == 0 {
			delete(meta, member)
		}
	}
}
