package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestNode(t *testing.T) {
	t.Parallel()
	data := map[string]any{
		"text": "x", "flag": true, "whole": int64(3), "float": float64(4), "part": 1.5, "huge": 1e300,
		"list": []any{"a", 3, "b"}, "object": map[string]any{"in": map[string]any{"deep": 7}}, "objects": []any{map[string]any{"a": "b"}, "no"},
		"null": nil,
	}
	var errs field.ErrorList
	root := node{data: data, errs: &errs}
	if root.text("text") != "x" || !root.flag("flag") || root.integer("whole") != 3 || root.integer("float") != 4 {
		t.Error("a value is read wrongly")
	}
	if root.text("absent")+root.text("null") != "" || root.flag("absent") || root.integer("null") != 0 || root.texts("absent") != nil ||
		root.objects("null") != nil || root.has("null") {
		t.Error("what is absent has a value")
	}
	if len(errs) > 0 {
		t.Fatalf("faults in good values: %v", errs)
	}
	if got := root.texts("list"); len(got) != 3 || got[0] != "a" || got[2] != "b" {
		t.Errorf("list %q", got)
	}
	if got := root.objects("objects"); len(got) != 2 || got[0].text("a") != "b" {
		t.Errorf("objects %v", got)
	}
	root.object("object").object("in").text("deep")
	root.text("flag")
	root.flag("text")
	root.integer("part")
	root.integer("huge")
	root.integer("text")
	root.texts("text")
	root.objects("text")
	root.object("list")
	want := []string{"list[1]", "objects[1]", "object.in.deep", "flag", "text", "part", "huge", "text", "text", "list"}
	if len(errs) != len(want) {
		t.Fatalf("faults %v, want at %q", errs, want)
	}
	for i, err := range errs {
		if err.Field != want[i] || err.Type != field.ErrorTypeTypeInvalid || err.BadValue != (omitted{}) {
			t.Errorf("fault %d: %v, want at %s", i, err, want[i])
		}
	}
}
