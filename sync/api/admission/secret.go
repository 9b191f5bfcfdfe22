package admission

import (
	"encoding/base64"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// maxSecretData bounds the values of one Secret together, in bytes. Source: Kubernetes'
// MaxSecretSize.
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

// RemoveMintedToken removes the stored token of a Repository with a Connection when its URL
// changes: it was minted for the former URL, and a person cannot replace it. A token that is part
// of the update stays.
func RemoveMintedToken(obj, old *unstructured.Unstructured) {
	if old == nil || obj.GetKind() != "Repository" {
		return
	}
	stored := SecureNames(old)["token"]
	after, err := api.RepositoryView(obj)
	if err != nil || stored == "" || after.Spec.Connection == nil || after.Spec.Connection.Name == "" {
		return
	}
	before, err := api.RepositoryView(old)
	if err != nil || before.Spec.Connection == nil || before.Spec.Connection.Name == "" || before.Status.Token.LastUpdated == 0 {
		return
	}
	was, is := before.Spec.Block(), after.Spec.Block()
	if was == nil || is == nil || was.URL == is.URL {
		return
	}
	secure, _ := obj.Object["secure"].(map[string]any)
	token, _ := secure["token"].(map[string]any)
	if name, _ := token["name"].(string); token["create"] != nil || token["remove"] != nil || name != "" && name != stored {
		return
	}
	changed := map[string]any{}
	maps.Copy(changed, secure)
	changed["token"] = map[string]any{"remove": true}
	obj.Object["secure"] = changed
}

// The interval of pulls in seconds: what an absent one means, and the least
// that admission leaves as it is. Source: Grafana's defaults.
const (
	defaultInterval = 60
	minInterval     = 10
)

// Finalizers are those of a Repository that names none. Source: Grafana's mutator.
var Finalizers = []string{api.FinalizerRemove, api.FinalizerRemoveJobs, api.FinalizerCleanup}

// DefaultFinalizers sets the finalizers that Grafana gives a Repository without any. It is only for
// servers with a controller that removes them: without one the object could not be deleted.
func DefaultFinalizers(obj *unstructured.Unstructured) {
	if isRepository(obj) && obj.GetDeletionTimestamp() == nil && len(obj.GetFinalizers()) == 0 {
		obj.SetFinalizers(Finalizers)
	}
}

// Default sets the defaults of Grafana's admission and of the Kubernetes API in obj, except
// finalizers.
func Default(obj *unstructured.Unstructured) {
	switch gvk := obj.GroupVersionKind(); {
	case gvk.Group == "" && gvk.Kind == "Secret":
		foldStringData(obj.Object)
		if kind, _ := obj.Object["type"].(string); kind == "" {
			obj.Object["type"] = "Opaque"
		}
	case gvk.Group == api.ProvisioningGroup && gvk.Kind == "Repository":
		defaultRepository(obj)
	case gvk.Group == api.GitRepositories.Group:
		defaultSource(obj)
	}
}

func defaultRepository(obj *unstructured.Unstructured) {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return
	}
	if title, set := spec["title"]; !set || title == "" || title == nil {
		spec["title"] = obj.GetName()
	}
	sync, ok := spec["sync"].(map[string]any)
	if !ok || sync["enabled"] != true {
		return
	}
	var errs field.ErrorList
	seconds := node{data: sync, errs: &errs}.integer("intervalSeconds")
	switch {
	case len(errs) > 0 || seconds < 0: // validation reports it
	case seconds == 0:
		sync["intervalSeconds"] = int64(defaultInterval)
	case seconds < minInterval:
		sync["intervalSeconds"] = int64(minInterval)
	}
}

// foldStringData moves the write-only stringData of a Secret into data.
func foldStringData(object map[string]any) {
	given, ok := object["stringData"].(map[string]any)
	if !ok {
		return
	}
	for _, value := range given {
		if _, ok := value.(string); !ok {
			return // validation reports it
		}
	}
	data, ok := object["data"].(map[string]any)
	if !ok {
		if object["data"] != nil {
			return
		}
		data = map[string]any{}
	}
	for key, value := range given {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value.(string)))
	}
	object["data"] = data
	delete(object, "stringData")
}
