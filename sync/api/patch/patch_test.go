package patch

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"resourceVersion": "7"}, "spec": map[string]any{},
	}}
	for member, want := range map[string]string{
		"spec":   `[{"op":"test","path":"/metadata/resourceVersion","value":"7"}]`,
		"status": `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/status","value":{}}]`,
	} {
		got, err := json.Marshal(Guard(obj, member))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", member, got, err)
		}
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	if got := Escape("a/b~1"); got != "a~1b~01" {
		t.Error(got)
	}
}
