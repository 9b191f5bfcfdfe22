package apiserver

import (
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
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

// fieldManagers makes the field manager of an endpoint on first use: most servers see no write for most kinds.
type fieldManagers struct{ made sync.Map }

// of returns the field manager of the endpoint of t.
func (m *fieldManagers) of(t target) *managedfields.FieldManager {
	key := [3]string{resourceName(t.kind), t.version, t.subresource}
	made, ok := m.made.Load(key)
	if !ok {
		made, _ = m.made.LoadOrStore(key, newFieldManager(t))
	}
	return made.(*managedfields.FieldManager)
}

// update returns obj with managedFields that give manager the fields in which it
// differs from live, which may be an empty object.
func (m *fieldManagers) update(t target, live, obj *unstructured.Unstructured, manager string) *unstructured.Unstructured {
	return m.of(t).UpdateNoErrors(live, obj, manager).(*unstructured.Unstructured)
}

// apply merges the applied configuration into the live object, an empty one when there is none, and returns
// the result, which shares nothing with either. Fields that another manager owns with another value are a 409
// status error, unless force takes them over.
func (m *fieldManagers) apply(
	t target, live, config *unstructured.Unstructured, manager string, force bool,
) (*unstructured.Unstructured, error) {
	if config.GetManagedFields() != nil {
		return nil, badRequest("metadata.managedFields must be nil")
	}
	merged, err := m.of(t).Apply(live, config, manager, force)
	if err != nil {
		return nil, err
	}
	return merged.(*unstructured.Unstructured).DeepCopy(), nil
}

func newFieldManager(t target) *managedfields.FieldManager {
	// Callers do not own fields that the endpoint does not write.
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
			filters[fieldpath.APIVersion(apiVersionOf(t.kind, version))] = fieldpath.NewExcludeSetFilter(fieldpath.NewSet(reset...))
		}
	}
	gv := schema.GroupVersion{Group: t.kind.Group, Version: t.version}
	codec := objectCodec{types: objectType()}
	made, err := managedfields.NewDefaultCRDFieldManager(codec, codec, codec, codec, gv.WithKind(t.kind.Kind), gv, t.subresource, filters)
	if err != nil {
		panic(err) // the kinds are our own
	}
	return made
}

// objectCodec converts, defaults and makes objects, all *unstructured.Unstructured, for a field manager. All
// versions of a kind have the same fields. It is not asked to convert in place or to convert field labels.
type objectCodec struct {
	runtime.ObjectConvertor
	types typed.ParseableType
}

func (c objectCodec) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return c.types.FromUnstructured(obj.(*unstructured.Unstructured).Object, options...)
}

func (objectCodec) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	object, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("fields of %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: object}, nil
}

func (objectCodec) ConvertToVersion(obj runtime.Object, versioner runtime.GroupVersioner) (runtime.Object, error) {
	u := obj.(*unstructured.Unstructured)
	kind, ok := versioner.KindForGroupVersionKinds([]schema.GroupVersionKind{u.GroupVersionKind()})
	if !ok {
		return nil, fmt.Errorf("convert %s to %v", u.GroupVersionKind(), versioner)
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(kind)
	return out, nil
}

func (objectCodec) Default(runtime.Object) {}

func (objectCodec) New(kind schema.GroupVersionKind) (runtime.Object, error) {
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
