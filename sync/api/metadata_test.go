package api

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestTags: a tag that is read or set without a copy of all of them is the one that the copy would
// have.
func TestTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		all    func(*unstructured.Unstructured) map[string]string
		one    func(*unstructured.Unstructured, string) string
		set    func(u *unstructured.Unstructured, name, value string)
		member string
	}{
		{"labels", (*unstructured.Unstructured).GetLabels, Label, SetLabel, "labels"},
		{"annotations", (*unstructured.Unstructured).GetAnnotations, Annotation, SetAnnotation, "annotations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := &unstructured.Unstructured{}
			if v := c.one(u, "a"); v != "" {
				t.Errorf("an object without metadata has %q", v)
			}
			want := map[string]string{}
			for _, step := range [][2]string{{"a", "1"}, {"b", "2"}, {"a", "3"}, {"none", ""}, {"b", ""}, {"a", ""}} {
				c.set(u, step[0], step[1])
				if want[step[0]] = step[1]; step[1] == "" {
					delete(want, step[0])
				}
				if got := c.all(u); !maps.Equal(got, want) || c.one(u, step[0]) != step[1] {
					t.Fatalf("after %q: %v and %q, want %v", step, got, c.one(u, step[0]), want)
				}
			}
			if meta := u.Object["metadata"].(map[string]any); len(meta) > 0 {
				t.Errorf("an empty member stays: %v", meta)
			}
		})
	}
}

func TestMetaAndSpec(t *testing.T) {
	t.Parallel()
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"uid": "u", "generation": int64(3)},
		"spec":     map[string]any{"action": "pull", "pull": map[string]any{}},
	}}
	for member, want := range map[string]string{"uid": "u", "generation": "", "name": ""} {
		if got := Meta(u, member); got != want {
			t.Errorf("metadata %s: %q", member, got)
		}
	}
	for member, want := range map[string]string{"action": "pull", "pull": "", "none": ""} {
		if got := Spec(u, member); got != want {
			t.Errorf("spec %s: %q", member, got)
		}
	}
}
