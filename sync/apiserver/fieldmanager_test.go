package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldsOf returns the fields of each manager: "manager operation version/subresource".
func fieldsOf(t *testing.T, u *unstructured.Unstructured) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, e := range u.GetManagedFields() {
		set := fieldpath.NewSet()
		if err := set.FromJSON(strings.NewReader(e.FieldsV1.GetRawString())); err != nil || e.FieldsType != "FieldsV1" {
			t.Fatalf("entry %v: %v", e, err)
		}
		_, version, _ := strings.Cut(e.APIVersion, "/")
		manager := fmt.Sprintf("%s %s %s/%s", e.Manager, e.Operation, version, e.Subresource)
		out[manager] = strings.ReplaceAll(set.String(), "\n", ", ")
	}
	return out
}

// TestFieldManagers: who owns which field after a history of writes, and which writes are refused.
func TestFieldManagers(t *testing.T) {
	t.Parallel()
	type write struct {
		as, body string // as: "manager operation version/subresource"; force takes fields over
		force    bool
	}
	const unmanaged = `{"metadata":{"uid":"u"},"spec":{"a":"0"}}`
	finalizers := func(list string) string { return `{"metadata":{"finalizers":[` + list + `]}}` }
	var many []write
	owned := map[string]string{"ancient-changes Update v1/": ".spec, .spec.a00, .spec.a01, .spec.a02"}
	for i, spec := 0, ""; i < 12; i++ {
		spec += fmt.Sprintf(`,"a%02d":"0"`, i)
		many = append(many, write{as: fmt.Sprintf("m%02d Update v1/", i), body: `{"spec":{` + spec[1:] + `}}`})
		if i > 2 {
			owned[many[i].as] = fmt.Sprintf(".spec.a%02d", i)
		}
	}
	for name, c := range map[string]struct {
		live   string // without managers
		writes []write
		want   map[string]string // fields, by manager
		refuse string            // the message of the conflict of the last write
	}{
		"an update owns what it changes": {writes: []write{{"a Update v1/", `{"spec":{"a":"1","b":{"c":"1"}}}`, false},
			{"b Update v1/", `{"spec":{"a":"1","b":{"c":"2"}}}`, false}},
			want: map[string]string{"a Update v1/": ".spec, .spec.a, .spec.b", "b Update v1/": ".spec.b.c"}},
		"a manager without a name": {writes: []write{{" Update v1/", `{"spec":{"a":"1"}}`, false}},
			want: map[string]string{"unknown Update v1/": ".spec, .spec.a"}},
		"appliers share the same value": {writes: []write{{"a Apply v1/", `{"spec":{"a":"1"}}`, false}, {"b Apply v1/", `{"spec":{"a":"1"}}`, false}},
			want: map[string]string{"a Apply v1/": ".spec.a", "b Apply v1/": ".spec.a"}},
		"an applier stays the same in another version": {writes: []write{{"a Apply v1/", `{"spec":{"a":"1"}}`, false},
			{"a Apply v1beta1/", `{"spec":{"b":"1"}}`, false}}, want: map[string]string{"a Apply v1beta1/": ".spec.b"}},
		"force takes over": {writes: []write{{"a Apply v1/", `{"spec":{"a":"1","b":"1"}}`, false}, {"b Apply v1/", `{"spec":{"a":"2"}}`, true}},
			want: map[string]string{"a Apply v1/": ".spec.b", "b Apply v1/": ".spec.a"}},
		"a conflict": {writes: []write{{"a Apply v1/", `{"spec":{"a":"1"}}`, false}, {"b Apply v1/", `{"spec":{"a":"2"}}`, false}},
			refuse: `Apply failed with 1 conflict: conflict with "a": .spec.a`},
		"conflicts with an update": {writes: []write{{"a Update v1beta1/", `{"spec":{"a":"1","b":"1"}}`, false}, {"b Apply v1/", `{"spec":{"a":"2","b":"2"}}`, false}},
			refuse: "Apply failed with 2 conflicts: conflicts with \"a\" using folder.grafana.app/v1beta1:\n- .spec.a\n- .spec.b"},
		"fields without a manager": {live: unmanaged, writes: []write{{"a Apply v1/", `{"spec":{"a":"1"}}`, true}},
			want: map[string]string{"a Apply v1/": ".spec.a", "before-first-apply Update v1/": ".spec"}},
		"an update of fields without a manager": {live: unmanaged, writes: []write{{"a Update v1/", `{"metadata":{"uid":"u"},"spec":{"a":"1"}}`, false}},
			want: map[string]string{}},
		"finalizers and owners merge by element": {writes: []write{{"a Apply v1/", finalizers(`"x"`), false}, {"b Apply v1/", finalizers(`"y"`), false},
			{"c Apply v1/", `{"metadata":{"ownerReferences":[{"uid":"o","name":"n"}]}}`, false}},
			want: map[string]string{"a Apply v1/": `.metadata.finalizers[="x"]`, "b Apply v1/": `.metadata.finalizers[="y"]`,
				"c Apply v1/": `.metadata.ownerReferences[uid="o"]`}},
		"lists of a spec are whole": {writes: []write{{"a Apply v1/", `{"spec":{"l":["x"]}}`, false}, {"b Apply v1/", `{"spec":{"l":["y"]}}`, false}},
			refuse: `Apply failed with 1 conflict: conflict with "a": .spec.l`},
		"a client that knows nothing of managers": {writes: []write{{"a Update v1/", `{"spec":{"a":"1"}}`, false},
			{"b Update v1/", `{"metadata":{"managedFields":[{"operation":"x"}]},"spec":{"a":"1","b":"1"}}`, false}},
			want: map[string]string{"a Update v1/": ".spec, .spec.a", "b Update v1/": ".spec.b"}},
		"managers are forgotten": {writes: []write{{"a Update v1/", `{"metadata":{"uid":"u"},"spec":{"a":"1"}}`, false},
			{"b Update v1/", `{"metadata":{"uid":"u","managedFields":[{}]},"spec":{"a":"2"}}`, false}}, want: map[string]string{}},
		"a version that is not served any more": {live: `{"metadata":{"managedFields":[{"manager":"old","operation":"Apply",
			"apiVersion":"folder.grafana.app/v9","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:a":{}}}}]},"spec":{"a":"1"}}`,
			writes: []write{{"a Apply v1/", `{"spec":{"a":"2"}}`, false}}, want: map[string]string{"a Apply v1/": ".spec.a"}},
		"status is owned by its endpoint": {writes: []write{{"a Update v1/", `{"spec":{"a":"1"},"status":{"a":"1"}}`, false},
			{"b Update v1/status", `{"metadata":{"labels":{"x":"y"}},"spec":{"a":"2"},"status":{"a":"2"}}`, false}},
			want: map[string]string{"a Update v1/": ".spec, .spec.a", "b Update v1/status": ".status.a"}},
		"the oldest of many updates are one": {writes: many, want: owned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := folderKind(t)
			k.Status = true
			parse := func(version, body string) (target, *unstructured.Unstructured) {
				e := target{kind: k, namespace: "default", name: "f", version: version}
				u := e.empty()
				if err := json.Unmarshal([]byte(body), &u.Object); body != "" && err != nil {
					t.Fatal(err)
				}
				return e, u
			}
			_, live := parse("v1", c.live)
			var err error
			for _, w := range c.writes {
				as := strings.Split(w.as, " ")
				version, subresource, _ := strings.Cut(as[2], "/")
				e, obj := parse(version, w.body)
				e.subresource = subresource
				if as[1] == "Update" {
					live = updateOwners(e, live, obj, as[0])
					continue
				}
				old, was, given := live, live.DeepCopy(), obj.DeepCopy()
				if live, err = applyOwned(e, old, obj, as[0], w.force); err != nil {
					break
				}
				shared := live.DeepCopy()
				for _, part := range live.Object {
					if members, ok := part.(map[string]any); ok {
						clear(members)
					}
				}
				if !reflect.DeepEqual(old, was) || !reflect.DeepEqual(obj, given) {
					t.Errorf("apply shares its result: %v, %v", old, obj)
				}
				live = shared
			}
			if c.refuse != "" {
				if !apierrors.IsConflict(err) || err.Error() != c.refuse {
					t.Errorf("refused with %v", err)
				}
			} else if err != nil {
				t.Error(err)
			} else if got := fieldsOf(t, live); !maps.Equal(got, c.want) {
				t.Errorf("managers own %q, want %q", got, c.want)
			}
		})
	}
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

// TestStrategicPatchesOfKubectl: patches that the API machinery makes between two objects lead from
// one to the other, as it does by itself.
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
