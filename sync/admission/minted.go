package admission

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// DropMinted takes the stored token from a Repository that names a Connection and
// whose URL changes: it was minted for the repository of before, and a person
// cannot give it anew. A token that comes with the change stays.
func DropMinted(obj, old *unstructured.Unstructured) {
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
