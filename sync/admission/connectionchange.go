package admission

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// validateConnectionChange holds the rules between the stored Connection and the
// new one: a secret that was given for one server must not be sent to another.
func validateConnectionChange(obj, old *unstructured.Unstructured, secure node) {
	before, err := api.ConnectionView(old)
	if err != nil {
		return // a stored object that cannot be read must stay repairable
	}
	after, err := api.ConnectionView(obj)
	if err != nil || audience(after.Spec) == audience(before.Spec) {
		return // what cannot be read is told of by other rules
	}
	stored := SecureNames(old)
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		member := secure.object(name)
		if ref := member.text("name"); !member.has("create") && !member.flag("remove") && (ref == "" || ref == stored[name]) {
			member.required("create", "the server changed, so the secret must be given anew (or remove: true)")
		}
	}
}

// audience is who is sent the secrets of a Connection. The type counts, because it
// chooses the API at the address.
func audience(spec api.ConnectionSpec) string {
	server := spec.Server()
	if a, err := auth.ParseServer(server); err == nil {
		server = a.Scheme + "://" + a.HostPort()
	}
	return spec.Type + " " + server
}
