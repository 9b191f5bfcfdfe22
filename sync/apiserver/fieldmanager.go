package apiserver

import (
	"fmt"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// metadata.managedFields records which client owns which field: every write
// updates it, and server-side apply merges by it.

// fieldManagers makes the field manager of an endpoint on first use: most
// servers see no write for most kinds.
type fieldManagers struct {
	mu   sync.Mutex
	made map[string]*managedfields.FieldManager // guarded by mu; by resource, version and subresource
}

// of returns the field manager of the endpoint of t.
func (m *fieldManagers) of(t target) (*managedfields.FieldManager, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := resourceName(t.kind) + "/" + t.version + "/" + t.subresource
	if made := m.made[key]; made != nil {
		return made, nil
	}
	made, err := newFieldManager(t)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("make field manager of %s: %w", t.kind.Plural, err))
	}
	if m.made == nil {
		m.made = map[string]*managedfields.FieldManager{}
	}
	m.made[key] = made
	return made, nil
}

// update returns obj with managedFields that give manager the fields in which it
// differs from live, which may be an empty object.
func (m *fieldManagers) update(t target, live, obj *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	fields, err := m.of(t)
	if err != nil {
		return nil, err
	}
	out, ok := fields.UpdateNoErrors(live, obj, manager).(*unstructured.Unstructured)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("update of managed fields gave %T", out))
	}
	return out, nil
}

// apply merges the applied configuration into the live object, an empty one when
// there is none, and returns the result, which shares nothing with either. Fields
// that another manager owns with another value are a 409 status error, unless
// force takes them over.
func (m *fieldManagers) apply(
	t target, live, config *unstructured.Unstructured, manager string, force bool,
) (*unstructured.Unstructured, error) {
	if config.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	fields, err := m.of(t)
	if err != nil {
		return nil, err
	}
	merged, err := fields.Apply(live, config, manager, force)
	if err != nil {
		return nil, err
	}
	out, ok := merged.(*unstructured.Unstructured)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("apply gave %T", merged))
	}
	return out.DeepCopy(), nil
}

func newFieldManager(t target) (*managedfields.FieldManager, error) {
	k := t.kind
	// Callers do not own fields that the endpoint does not write.
	var reset *fieldpath.Set
	switch {
	case t.subresource == "status":
		reset = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
	case k.Status:
		reset = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	}
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	if reset != nil {
		for _, version := range k.Versions {
			filters[fieldpath.APIVersion(apiVersionOf(k, version))] = fieldpath.NewExcludeSetFilter(reset)
		}
	}
	gv := schema.GroupVersion{Group: k.Group, Version: t.version}
	codec := objectCodec{types: fieldTypes(k)}
	return managedfields.NewDefaultCRDFieldManager(codec, codec, codec, codec, gv.WithKind(k.Kind), gv, t.subresource, filters)
}

// objectCodec converts, defaults and makes the objects of one kind for its field
// manager. All versions of a kind have the same fields.
type objectCodec struct{ types typed.ParseableType }

var (
	_ managedfields.TypeConverter = objectCodec{}
	_ runtime.ObjectConvertor     = objectCodec{}
	_ runtime.ObjectDefaulter     = objectCodec{}
	_ runtime.ObjectCreater       = objectCodec{}
)

func (c objectCodec) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("read fields of %T", obj)
	}
	return c.types.FromUnstructured(u.Object, options...)
}

func (objectCodec) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	object, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("fields of %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: object}, nil
}

func (objectCodec) ConvertToVersion(obj runtime.Object, versioner runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("convert %T", obj)
	}
	kind, ok := versioner.KindForGroupVersionKinds([]schema.GroupVersionKind{u.GroupVersionKind()})
	if !ok {
		return nil, fmt.Errorf("convert %s to %v", u.GroupVersionKind(), versioner)
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(kind)
	return out, nil
}

func (objectCodec) Convert(_, _, _ any) error { return fmt.Errorf("convert objects in place") }

func (objectCodec) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
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
	meta, ok := obj.Object["metadata"].(map[string]any)
	if !ok {
		return
	}
	kept.Object["metadata"] = maps.Clone(meta)
	kept.SetManagedFields(after)
	if sameValue(kept.Object, old.Object) {
		obj.Object["metadata"] = kept.Object["metadata"]
	}
}
