package admission

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// RemoveMintedToken removes the stored token of a Repository with a Connection when its URL changes: it was
// minted for the former URL, and a person cannot replace it. A token that is part of the update stays.
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
