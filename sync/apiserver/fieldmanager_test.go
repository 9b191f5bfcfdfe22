package apiserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// machinery is the field manager of the API machinery for an endpoint, with our schema.
func machinery(t *testing.T, e target) *managedfields.FieldManager {
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, version := range e.kind.Versions {
		reset := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		if e.subresource == "status" {
			reset = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
		}
		if e.kind.Status {
			filters[fieldpath.APIVersion(apiVersionOf(e.kind, version))] = fieldpath.NewExcludeSetFilter(reset)
		}
	}
	gv := schema.GroupVersion{Group: e.kind.Group, Version: e.version}
	codec := objectCodec{types: objectType()}
	m, err := managedfields.NewDefaultCRDFieldManager(codec, codec, codec, codec, gv.WithKind(e.kind.Kind), gv, e.subresource, filters)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type objectCodec struct {
	runtime.ObjectConvertor
	types typed.ParseableType
}

func (c objectCodec) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return c.types.FromUnstructured(obj.(*unstructured.Unstructured).Object, options...)
}

func (objectCodec) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return &unstructured.Unstructured{Object: value.AsValue().Unstructured().(map[string]any)}, nil
}

func (objectCodec) ConvertToVersion(obj runtime.Object, versioner runtime.GroupVersioner) (runtime.Object, error) {
	u := obj.(*unstructured.Unstructured)
	kind, _ := versioner.KindForGroupVersionKinds([]schema.GroupVersionKind{u.GroupVersionKind()})
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

// TestFieldManagersAreThoseOfTheMachinery: random updates and applies of some managers have the result, the owners and the
// conflicts of the API machinery.
func TestFieldManagersAreThoseOfTheMachinery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, compareFieldManagers) // both stamp the same time
}

func compareFieldManagers(t *testing.T) {
	k := folderKind(t)
	conflicts, oldest := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		e := target{kind: k, namespace: "default", name: "a", version: k.Versions[0]}
		live := e.empty()
		for step := range 40 {
			time.Sleep(time.Duration(r.IntN(3)) * 500 * time.Millisecond)
			e.version = k.Versions[r.IntN(len(k.Versions))]
			config := e.empty()
			config.SetName("a")
			spec := map[string]any{}
			for _, name := range []string{"a", "b", "c", "d"} {
				switch r.IntN(4) {
				case 0:
					spec[name] = pick("1", "2")
				case 1:
					spec[name] = map[string]any{pick("x", "y"): pick("1", "2"), "l": []any{pick("1", "2"), map[string]any{"z": pick("1", "2")}}}
				}
			}
			config.Object["spec"] = spec
			if r.IntN(3) == 0 {
				config.SetLabels(map[string]string{pick("a", "b"): pick("1", "2")})
				config.SetFinalizers([]string{pick("a", "b", "c")})
				config.SetOwnerReferences([]metav1.OwnerReference{{UID: "u", Name: pick("1", "2")}})
			}
			manager := pick("one", "two", "kubectl", fmt.Sprint("m", r.IntN(20)))
			if r.IntN(8) == 0 {
				text, _ := json.Marshal(config)
				config.SetAnnotations(map[string]string{lastApplied: string(text)})
			}
			m := machinery(t, e)
			if r.IntN(3) > 0 {
				if seed%2 == 0 {
					config.Object["spec"] = map[string]any{fmt.Sprint("f", step): "1"}
					maps.Copy(config.Object["spec"].(map[string]any), asMap(live.Object["spec"]))
				} else if r.IntN(4) == 0 {
					config.SetManagedFields([][]metav1.ManagedFieldsEntry{live.GetManagedFields(), {}, {{}}, {{Operation: "x"}}}[r.IntN(4)])
				}
				config.SetUID(live.GetUID())
				want := m.UpdateNoErrors(live.DeepCopy(), config.DeepCopy(), manager).(*unstructured.Unstructured)
				got := updateOwners(e, live.DeepCopy(), config.DeepCopy(), manager)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d: update is\n%v\nwant\n%v", seed, step, got, want)
				}
				live = want
			} else {
				force := r.IntN(3) == 0
				want, wantErr := m.Apply(live.DeepCopy(), config.DeepCopy(), manager, force)
				got, err := applyOwned(e, live.DeepCopy(), config.DeepCopy(), manager, force)
				if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
					t.Fatalf("seed %d, step %d: apply of %s is refused with\n%v\nwant\n%v", seed, step, manager, err, wantErr)
				}
				if err != nil {
					conflicts++
					if a, b := sortedCauses(err), sortedCauses(wantErr); !reflect.DeepEqual(a, b) {
						t.Fatalf("seed %d, step %d: status %v, want %v", seed, step, a, b)
					}
					continue
				}
				if w := want.(*unstructured.Unstructured); !reflect.DeepEqual(got, w) {
					t.Fatalf("seed %d, step %d: apply is\n%v\nwant\n%v", seed, step, got, w)
				}
				live = want.(*unstructured.Unstructured)
			}
			live.SetUID("u-1")
			for _, entry := range live.GetManagedFields() {
				if entry.Manager == oldUpdates {
					oldest++
				}
			}
		}
	}
	if conflicts < 100 || oldest < 20 {
		t.Errorf("%d conflicts and %d merged entries prove little", conflicts, oldest)
	}
}

// sortedCauses is the status of a conflict: the machinery names them in the order of a map.
func sortedCauses(err error) metav1.Status {
	status := err.(apierrors.APIStatus).Status()
	slices.SortFunc(status.Details.Causes, func(a, b metav1.StatusCause) int { return cmp.Compare(a.Message+a.Field, b.Message+b.Field) })
	return status
}

// metadataLists is the schema of strategic patches for the API machinery.
type metadataLists string

func (m metadataLists) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	return m + metadataLists("."+key), strategicpatch.PatchMeta{}, nil
}

func (m metadataLists) LookupPatchMetadataForSlice(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	var meta strategicpatch.PatchMeta
	if by, ok := mergedLists[key]; ok && m == ".metadata" {
		meta.SetPatchStrategies([]string{"merge"})
		meta.SetPatchMergeKey(by)
	}
	return m + metadataLists("."+key+"[]"), meta, nil
}

func (m metadataLists) Name() string { return string(m) }

// TestStrategicPatchesOfKubectl: patches that the API machinery makes between two objects lead from one to the other, as
// it does by itself.
func TestStrategicPatchesOfKubectl(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	random := func() []byte {
		u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{}}}
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				u.Object["data"].(map[string]any)[name] = fmt.Sprint(r.IntN(2))
			}
		}
		var finalizers []string
		var references []metav1.OwnerReference
		for _, name := range []string{"x", "y", "z"} {
			if r.IntN(2) == 0 {
				finalizers = append(finalizers, name)
			}
			if r.IntN(2) == 0 {
				references = append(references, metav1.OwnerReference{UID: types.UID("u-" + name), Name: fmt.Sprint(r.IntN(2))})
			}
		}
		u.SetFinalizers(finalizers)
		u.SetOwnerReferences(references)
		text, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for range 500 {
		from, to := random(), random()
		patch, err := strategicpatch.CreateTwoWayMergePatchUsingLookupPatchMeta(from, to, metadataLists(""))
		if err != nil {
			t.Fatal(err)
		}
		want, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(from, patch, metadataLists(""))
		if err != nil {
			t.Fatal(err)
		}
		got, err := strategicPatched(from, patch)
		if err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%s with %s is\n%s\nwant\n%s", from, patch, got, want)
		}
	}
}
