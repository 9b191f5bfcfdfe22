package apiserver

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
)

// kindOf returns the kind of a group and a plural name ("" is the core group).
func kindOf(group, plural string) (api.Kind, bool) {
	for _, k := range api.Kinds {
		if k.Group == group && k.Plural == plural {
			return k, true
		}
	}
	return api.Kind{}, false
}

// kindNamed returns the kind of an object by its group and kind.
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

// apiVersionOf returns the apiVersion of a kind in a version.
func apiVersionOf(k api.Kind, version string) string {
	return schema.GroupVersion{Group: k.Group, Version: version}.String()
}

// storedVersion is the apiVersion of the stored form.
func storedVersion(k api.Kind) string { return apiVersionOf(k, k.Versions[0]) }

func served(k api.Kind, version string) bool { return slices.Contains(k.Versions, version) }

// resourceName returns the name of a kind in the store and the feeds.
func resourceName(k api.Kind) string { return k.Group + "/" + k.Plural }

func objectKey(k api.Kind, namespace, name string) state.ObjectKey {
	return state.ObjectKey{Resource: resourceName(k), Namespace: namespace, Name: name}
}

// topLevel returns the members that objects of a kind may have beside apiVersion,
// kind and metadata. Others are reported to the client and dropped, as with a
// structural schema.
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

// objectMembers returns the members of topLevel that must be objects.
func objectMembers(k api.Kind) []string {
	switch {
	case k.Group == "" && k.Plural == "secrets":
		return []string{"data", "stringData"}
	case k.Group == "" && k.Plural == "events":
		return []string{"involvedObject", "related", "series", "source"}
	}
	return topLevel(k)
}

// grafanaNames reports whether a kind allows Grafana's names, which may have
// capitals, colons and underscores: the uids of dashboards and folders are older
// than the API, and a job is named after its action (r1-fixFolderMetadata).
func grafanaNames(k api.Kind) bool {
	switch k.Group {
	case api.DashboardGroup, api.FolderGroup:
		return true
	case api.ProvisioningGroup:
		return k.Plural == "jobs" || k.Plural == "historicjobs"
	}
	return false
}

// Access to objects inside the process, by the same rules as over HTTP. Errors
// are *apierrors.StatusError.

// getObject returns one object in the preferred version.
func (s *Server) getObject(ctx context.Context, k api.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	cur, err := s.read(ctx, target{kind: k, version: k.Versions[0], namespace: namespace, name: name})
	if err != nil {
		return nil, s.asStatus(ctx, err)
	}
	if cur.object == nil {
		return nil, notFound(k, name)
	}
	return cur.object, nil
}

// listObjects returns the objects of a namespace ("" = all) in the preferred
// version.
func (s *Server) listObjects(ctx context.Context, k api.Kind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	page, err := s.store.Objects(ctx, state.ObjectQuery{Resource: resourceName(k), Namespace: namespace})
	if err != nil {
		return nil, s.asStatus(ctx, err)
	}
	selection := selection{Namespace: namespace, Labels: sel, Fields: fields.Everything()}
	var out []*unstructured.Unstructured
	for _, item := range page.Items {
		if !selection.matches(k, item.Data) {
			continue
		}
		data, err := s.reveal(ctx, k, item.Data)
		if err != nil {
			return nil, s.asStatus(ctx, err)
		}
		object, err := decodeObject(data)
		if err != nil {
			return nil, s.asStatus(ctx, err)
		}
		out = append(out, object)
	}
	return out, nil
}

// createObject stores a new object and returns it. obj is not changed.
func (s *Server) createObject(
	ctx context.Context, k api.Kind, obj *unstructured.Unstructured, o writeOptions,
) (*unstructured.Unstructured, error) {
	o, t, obj, err := inside(k, obj, o)
	if err != nil {
		return nil, err
	}
	out, err := s.add(ctx, t, obj, o)
	return s.decoded(ctx, t, out, err)
}

// patchObject changes an object by a patch. An apply patch creates a missing
// object.
func (s *Server) patchObject(
	ctx context.Context, k api.Kind, namespace, name string, kind types.PatchType, patch []byte, o writeOptions,
) (*unstructured.Unstructured, error) {
	o = withDefaults(k, o)
	t := target{kind: k, version: o.Version, namespace: namespace, name: name, subresource: o.Subresource}
	out, _, err := s.patch(ctx, t, kind, patch, o)
	return s.decoded(ctx, t, out, err)
}

// deleteObject deletes an object, or marks it while it has finalizers.
func (s *Server) deleteObject(ctx context.Context, k api.Kind, namespace, name string, o metav1.DeleteOptions) error {
	t := target{kind: k, version: k.Versions[0], namespace: namespace, name: name}
	_, _, err := s.remove(ctx, t, o, withDefaults(k, writeOptions{DryRun: len(o.DryRun) > 0}))
	if err != nil {
		return s.asStatus(ctx, err)
	}
	return nil
}

// withDefaults fills in the options of a write inside the process.
func withDefaults(k api.Kind, o writeOptions) writeOptions {
	o.Version = cmp.Or(o.Version, k.Versions[0])
	o.Manager = cmp.Or(o.Manager, defaultManager)
	o.Validation = cmp.Or(o.Validation, metav1.FieldValidationIgnore)
	return o
}

// inside copies an object and converts it to the shape of a decoded request.
func inside(k api.Kind, obj *unstructured.Unstructured, o writeOptions) (writeOptions, target, *unstructured.Unstructured, error) {
	o = withDefaults(k, o)
	obj = obj.DeepCopy()
	if _, err := coerce(k, obj.Object); err != nil {
		return o, target{}, nil, badRequest("read %s: %s", k.Singular, err)
	}
	t := target{kind: k, version: o.Version, namespace: obj.GetNamespace(), name: obj.GetName(), subresource: o.Subresource}
	return o, t, obj, nil
}

// decoded decodes the result of a write.
func (s *Server) decoded(ctx context.Context, t target, data []byte, err error) (*unstructured.Unstructured, error) {
	if err == nil {
		data, err = s.reveal(ctx, t.kind, data)
	}
	if err != nil {
		return nil, s.asStatus(ctx, err)
	}
	object, err := decodeObject(data)
	if err != nil {
		return nil, s.asStatus(ctx, err)
	}
	object.SetAPIVersion(t.apiVersion())
	return object, nil
}

// asStatus converts any error to the Status that clients receive.
func (s *Server) asStatus(ctx context.Context, err error) error {
	return &apierrors.StatusError{ErrStatus: *s.statusOf(ctx, err)}
}
