package control

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"limpet/sync/text"
)

// TestEditable: what is redacted leaves valid YAML with all other values; no secure value is in it,
// however short.
func TestEditable(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nMIIB\n"
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "X", "spec": map[string]any{"a": pem, "authorization": "abcdefgh",
		"list": []any{"x", pem + "-----END CERTIFICATE-----\n", int64(1)}, "z": "last"},
		"secure": map[string]any{"token": map[string]any{"create": "pass"}, "verify": map[string]any{"name": "s"}}}}
	want := map[string]any{"kind": "X", "spec": map[string]any{"a": text.Redacted, "authorization": text.Redacted,
		"list": []any{"x", text.Redacted + "\n", 1.0}, "z": "last"},
		"secure": map[string]any{"token": map[string]any{"create": text.Redacted}, "verify": map[string]any{"name": "s"}}}
	data, err := Editable(u)
	var got map[string]any
	if failed := yaml.Unmarshal([]byte(data), &got); err != nil || failed != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v: %s", err, failed, data)
	}
}
