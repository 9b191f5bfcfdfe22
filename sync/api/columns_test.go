package api

import (
	"testing"

	"k8s.io/client-go/util/jsonpath"
)

// A server that has the definitions reads the paths by this library.
func TestColumnsOfAllKindsParse(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds {
		for _, c := range k.Columns {
			if err := jsonpath.New(c.Name).Parse("{" + c.Path + "}"); err != nil {
				t.Errorf("%s, column %s: %v", k.Kind, c.Name, err)
			}
		}
	}
}

func TestColumnText(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"metadata": map[string]any{"name": "one"},
		"spec":     map[string]any{"sync": map[string]any{"target": "folder"}, "count": int64(3)},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Stalled", "status": "False"},
			map[string]any{"type": "Ready", "status": "True"}}},
	}
	tests := []struct{ path, want string }{
		{"", "one"},
		{".spec.sync.target", "folder"},
		{".spec.count", "3"},
		{".spec.none.there", ""},
		{`.status.conditions[?(@.type=="Ready")].status`, "True"},
		{`.status.conditions[?(@.type=="Gone")].status`, ""},
		{".spec[", ""},
		{`.spec[?(@.type=="Ready")].status`, ""},
	}
	for _, tt := range tests {
		if got := (Column{Path: tt.path}).Text(object); got != tt.want {
			t.Errorf("path %q shows %q, want %q", tt.path, got, tt.want)
		}
	}
}
