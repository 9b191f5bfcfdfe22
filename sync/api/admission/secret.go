package admission

import (
	"encoding/base64"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSecretData bounds the values of one Secret together, in bytes. Source: Kubernetes' MaxSecretSize.
const maxSecretData = 1 << 20

// validateSecret applies Kubernetes' rules for a Secret. No value is repeated.
func validateSecret(old *unstructured.Unstructured, root node) {
	total := 0
	for _, member := range []string{"data", "stringData"} {
		values := root.object(member)
		for _, key := range values.names() {
			at := field.NewPath(member).Key(key)
			for _, msg := range validation.IsConfigMapKey(key) {
				root.add(field.Invalid(at, key, msg))
			}
			text, ok := values.data[key].(string)
			if !ok && values.data[key] != nil {
				root.add(field.TypeInvalid(at, omitted{}, "must be of type string"))
				continue
			}
			if member == "data" {
				plain, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					root.add(field.Invalid(at, omitted{}, "must be base64; plain text belongs in stringData"))
				}
				total += len(plain)
			} else {
				total += len(text)
			}
		}
	}
	if total > maxSecretData {
		root.add(field.TooLong(field.NewPath("data"), "", maxSecretData))
	}
	if old == nil {
		return
	}
	if was, _, _ := unstructured.NestedString(old.Object, "type"); was != "" && root.text("type") != was {
		root.add(field.Invalid(field.NewPath("type"), root.text("type"), "is "+was+" and cannot be changed"))
	}
	if fixed, _, _ := unstructured.NestedBool(old.Object, "immutable"); fixed {
		if !root.flag("immutable") || root.has("stringData") || !reflect.DeepEqual(root.data["data"], old.Object["data"]) {
			root.add(field.Forbidden(field.NewPath("data"), "the secret is immutable; delete it and make a new one"))
		}
	}
}
