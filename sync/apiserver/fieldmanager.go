package apiserver

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"limpet/sync/api"
)

// metadata.managedFields records which client owns which field: every write
// updates it, and server-side apply merges by it.

// objectSchema holds the types that server-side apply needs: which lists merge, and
// by which key. Metadata has the types of the API machinery. There is no schema
// below spec and status, so maps merge by member and lists are replaced whole.
const objectSchema = `types:
- name: object
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: metadata}}
    - {name: spec, type: {namedType: members}}
    - {name: status, type: {namedType: members}}
    - {name: secure, type: {namedType: members}}
    - {name: data, type: {namedType: members}}
    - {name: stringData, type: {namedType: members}}
    elementType: {namedType: any}
- name: members
  map: {elementType: {namedType: any}}
- name: metadata
  map:
    fields:
    - {name: annotations, type: {namedType: texts}}
    - {name: labels, type: {namedType: texts}}
    - name: finalizers
      type: {list: {elementType: {scalar: string}, elementRelationship: associative}}
    - name: ownerReferences
      type: {list: {elementType: {namedType: atomic}, elementRelationship: associative, keys: [uid]}}
    elementType: {namedType: atomic}
- name: texts
  map: {elementType: {scalar: string}}
- name: any
  scalar: untyped
  list: {elementType: {namedType: atomic}, elementRelationship: atomic}
  map: {elementType: {namedType: any}, elementRelationship: separable}
- name: atomic
  scalar: untyped
  list: {elementType: {namedType: atomic}, elementRelationship: atomic}
  map: {elementType: {namedType: atomic}, elementRelationship: atomic}
`

var objectType = sync.OnceValue(func() typed.ParseableType {
	parser, err := typed.NewParser(objectSchema)
	if err != nil {
		panic(err)
	}
	return parser.Type("object")
})

// updateOwners returns obj with managedFields that give manager the fields in which it
// differs from live, which may be an empty object.
func updateOwners(t target, live, obj *unstructured.Unstructured, manager string) *unstructured.Unstructured {
	return fieldManager(t).UpdateNoErrors(live, obj, manager).(*unstructured.Unstructured)
}

// applyOwned merges the applied configuration into the live object, an empty one when there is
// none, and returns the result, which shares nothing with either. Fields that another manager owns
// with another value are a 409 status error, unless force takes them over.
func applyOwned(
	t target, live, config *unstructured.Unstructured, manager string, force bool,
) (*unstructured.Unstructured, error) {
	out, err := fieldManager(t).Apply(live.DeepCopy(), config.DeepCopy(), manager, force)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured), nil
}

// fieldManager returns the field manager of an endpoint. Callers do not own fields that the
// endpoint does not write.
func fieldManager(t target) *managedfields.FieldManager {
	var reset []fieldpath.Path
	switch {
	case t.subresource == "status":
		reset = []fieldpath.Path{fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")}
	case t.kind.Status:
		reset = []fieldpath.Path{fieldpath.MakePathOrDie("status")}
	}
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, version := range t.kind.Versions {
		if len(reset) > 0 {
			filter := fieldpath.NewExcludeSetFilter(fieldpath.NewSet(reset...))
			filters[fieldpath.APIVersion(apiVersionOf(t.kind, version))] = filter
		}
	}
	gv := schema.GroupVersion{Group: t.kind.Group, Version: t.version}
	converter := versions(t.kind)
	manager, err := managedfields.NewDefaultCRDFieldManager(
		converter, converter, converter, converter, gv.WithKind(t.kind.Kind), gv, t.subresource, filters)
	if err != nil {
		panic(err) // it fails without a converter only
	}
	return manager
}

// versions converts between the versions of a kind, all of which have the same fields.
type versions api.Kind

// ObjectToTyped returns an object with the types of objectSchema.
func (versions) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return objectType().FromUnstructured(obj.(*unstructured.Unstructured).Object, options...)
}

// TypedToObject returns the object of a typed value.
func (versions) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return &unstructured.Unstructured{Object: asMap(value.AsValue().Unstructured())}, nil
}

// ConvertToVersion returns the object in another version. A version that is not served any more is
// an error for which the field manager drops the entries of that version.
func (v versions) ConvertToVersion(obj runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	gv := to.(schema.GroupVersion)
	if gv.Group != v.Group || !slices.Contains(v.Versions, gv.Version) {
		return nil, runtime.NewNotRegisteredErrForKind(v.Kind, gv.WithKind(v.Kind))
	}
	out := &unstructured.Unstructured{Object: maps.Clone(obj.(*unstructured.Unstructured).Object)}
	out.SetAPIVersion(gv.String())
	return out, nil
}

// Convert is for the interface: the field manager converts whole objects to a version.
func (versions) Convert(_, _, _ any) error { return errors.ErrUnsupported }

// ConvertFieldLabel returns the label as it is.
func (versions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Default changes nothing: the API sets defaults at admission.
func (versions) Default(runtime.Object) {}

// New returns an object without content.
func (versions) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj, nil
}

// keepTimes restores the old times of managedFields when nothing else has
// changed, so that a write without effect stores nothing.
func keepTimes(old, obj *unstructured.Unstructured) {
	before, after := old.GetManagedFields(), obj.GetManagedFields()
	if len(before) != len(after) || len(after) == 0 {
		return
	}
	for i := range after {
		after[i].Time = before[i].Time
	}
	kept := &unstructured.Unstructured{Object: maps.Clone(obj.Object)}
	kept.Object["metadata"] = maps.Clone(asMap(obj.Object["metadata"]))
	kept.SetManagedFields(after)
	if sameValue(kept.Object, old.Object) {
		obj.Object["metadata"] = kept.Object["metadata"]
	}
}
