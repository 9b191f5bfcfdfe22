package dependency

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// webhookSecret proves nothing to the host of a Repository, and is looked up anew
// for each delivery.
const webhookSecret = "webhookSecret"

// Of is all that the credentials of a Repository or a Connection may come from, as
// the object says: its Secrets, its files, its Connection and the files of that. The
// Secrets of a Connection are used by the Connection.
func Of(u *unstructured.Unstructured) (wants []Want) {
	want := func(kind, name string) {
		w := Want{Thing: Thing{kind, u.GetNamespace(), name}}
		if name != "" && !slices.ContainsFunc(wants, func(other Want) bool { return other.Thing == w.Thing }) {
			wants = append(wants, w)
		}
	}
	want(File, u.GetName())
	connection, _, _ := unstructured.NestedString(u.Object, "spec", "connection", "name")
	want(File, connection)
	want(Connection, connection)
	if name := api.Annotation(u, api.AnnoGitProxySecret); name != "" {
		want(File, name)
		want(Secret, name)
	}
	secure, _, _ := unstructured.NestedMap(u.Object, "secure")
	for _, field := range slices.Sorted(maps.Keys(secure)) {
		if field == webhookSecret {
			continue
		}
		name, _, _ := unstructured.NestedString(secure, field, "name")
		want(Secret, name)
	}
	return wants
}
