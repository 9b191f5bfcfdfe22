package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
)

// kindOf answers the kind behind a group and a plural name ("" is the core
// group).
func kindOf(group, plural string) (api.Kind, bool) {
	for _, k := range api.Kinds {
		if k.Group == group && k.Plural == plural {
			return k, true
		}
	}
	return api.Kind{}, false
}

// kindNamed answers the kind of an object by its group and kind.
func kindNamed(group, kind string) (api.Kind, bool) {
	for _, k := range api.Kinds {
		if k.Group == group && k.Kind == kind {
			return k, true
		}
	}
	return api.Kind{}, false
}

func groupResource(k api.Kind) schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

func groupKind(k api.Kind) schema.GroupKind {
	return schema.GroupKind{Group: k.Group, Kind: k.Kind}
}

// apiVersionOf answers group/version as objects carry it.
func apiVersionOf(k api.Kind, version string) string {
	return schema.GroupVersion{Group: k.Group, Version: version}.String()
}

// storedVersion is the apiVersion of the stored form.
func storedVersion(k api.Kind) string { return apiVersionOf(k, k.Versions[0]) }

func served(k api.Kind, version string) bool { return slices.Contains(k.Versions, version) }

// resourceName is how the store and the feeds name a kind.
func resourceName(k api.Kind) string { return k.Group + "/" + k.Plural }

func objectKey(k api.Kind, namespace, name string) state.ObjectKey {
	return state.ObjectKey{Resource: resourceName(k), Namespace: namespace, Name: name}
}

// topLevel lists the members that objects of a kind may have beside apiVersion,
// kind and metadata. Others are reported to the client and dropped, as a
// structural schema does.
func topLevel(k api.Kind) []string {
	switch {
	case k.Group == "" && k.Plural == "secrets":
		return []string{"data", "immutable", "stringData", "type"}
	case k.Group == "" && k.Plural == "events":
		return []string{"action", "count", "eventTime", "firstTimestamp", "involvedObject", "lastTimestamp", "message",
			"reason", "related", "reportingComponent", "reportingInstance", "series", "source", "type"}
	case k.Group == api.CoordinationGroup:
		return []string{"spec"}
	case k.Group == api.ProvisioningGroup && (k.Plural == "repositories" || k.Plural == "connections"):
		return []string{"secure", "spec", "status"}
	}
	return []string{"spec", "status"}
}

// objectMembers lists the members of topLevel that must be objects.
func objectMembers(k api.Kind) []string {
	switch {
	case k.Group == "" && k.Plural == "secrets":
		return []string{"data", "stringData"}
	case k.Group == "" && k.Plural == "events":
		return []string{"involvedObject", "related", "series", "source"}
	}
	return topLevel(k)
}

// grafanaNames says that a kind takes Grafana's names, which may have capitals,
// colons and underscores: the uids of dashboards and folders are older than
// the API, and a job is named after its action (r1-fixFolderMetadata).
func grafanaNames(k api.Kind) bool {
	switch k.Group {
	case api.DashboardGroup, api.FolderGroup:
		return true
	case api.ProvisioningGroup:
		return k.Plural == "jobs" || k.Plural == "historicjobs"
	}
	return false
}
