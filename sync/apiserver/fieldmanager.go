package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
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

// This does what the managedfields package of the API machinery does for custom resources. That package links an OpenAPI
// parser of 2 MiB, which a schema of our own does not need.

const (
	maxUpdaters  = 10                   // entries of updates; the oldest are merged. Source: the API machinery.
	oldUpdates   = "ancient-changes"    // the manager of merged entries
	beforeApply  = "before-first-apply" // the manager of fields that were there without one
	thisUpdate   = "current-operation"  // the manager during an update, to see what it changes
	kubectlApply = "kubectl"            // the manager of kubectl apply --server-side
)

// unowned are the fields that have no manager.
var unowned = func() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, name := range []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
		"managedFields", "resourceVersion"} {
		set.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	return set
}()

// updateOwners returns obj with managedFields that give manager the fields in which it
// differs from live, which may be an empty object.
func updateOwners(t target, live, obj *unstructured.Unstructured, manager string) *unstructured.Unstructured {
	entries := obj.GetManagedFields()
	reset := entries != nil && (len(entries) == 0 || len(entries) == 1 && sameValue(entries[0], metav1.ManagedFieldsEntry{}))
	var owned owners
	if t.subresource == "" {
		owned, _ = decodeOwners(entries) // a client that knows nothing of them changes nothing
	}
	if len(owned.sets) == 0 && (t.subresource != "" || !reset) {
		owned, _ = decodeOwners(live.GetManagedFields())
	}
	obj.SetManagedFields(nil)
	if len(owned.sets) == 0 && live.GetUID() != "" {
		return obj // its fields never had managers, or they are to be forgotten
	}
	if err := owned.update(t, live, obj, manager); err != nil {
		obj.SetManagedFields(live.GetManagedFields())
		return obj
	}
	obj.SetManagedFields(owned.encode())
	return obj
}

// applyOwned merges the applied configuration into the live object, an empty one when there is none, and returns
// the result, which shares nothing with either. Fields that another manager owns with another value are a 409
// status error, unless force takes them over.
func applyOwned(
	t target, live, config *unstructured.Unstructured, manager string, force bool,
) (*unstructured.Unstructured, error) {
	if config.GetManagedFields() != nil {
		return nil, badRequest("metadata.managedFields must be nil")
	}
	out, err := applied(t, live, config, manager, force)
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) && manager == kubectlApply {
		ours, known := lastAppliedFields(t, live)
		if conflicts = slices.DeleteFunc(conflicts, func(c merge.Conflict) bool { return known && ours.Has(c.Path) }); len(conflicts) == 0 {
			out, err = applied(t, live, config, manager, true)
		}
	}
	if len(conflicts) > 0 {
		return nil, applyConflict(conflicts)
	}
	if err != nil {
		return nil, err
	}
	if annotations := out.GetAnnotations(); manager == kubectlApply && annotations[lastApplied] != "" {
		copied := config.DeepCopy()
		unstructured.RemoveNestedField(copied.Object, "metadata", "annotations", lastApplied)
		text, err := copied.MarshalJSON()
		if err != nil {
			return nil, err
		}
		annotations[lastApplied] = string(text)
		out.SetAnnotations(annotations)
	}
	return out.DeepCopy(), nil
}

func applied(t target, live, config *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
	owned, err := decodeOwners(live.GetManagedFields())
	if err != nil {
		return nil, fmt.Errorf("decode managedFields: %w", err)
	}
	if len(owned.sets) == 0 {
		if err := owned.update(t, t.empty(), live, beforeApply); err != nil {
			return nil, err
		}
	}
	before, err := typedAs(live, t.apiVersion(), typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	given, err := typedAs(config, t.apiVersion())
	if err != nil {
		return nil, fmt.Errorf("failed to create typed patch object: %w", err)
	}
	id := identifier(t, manager, metav1.ManagedFieldsOperationApply)
	after, sets, err := updaterOf(t).Apply(before, given, fieldpath.APIVersion(t.apiVersion()), owned.sets, id, force)
	if err != nil {
		return nil, err
	}
	owned.sets = sets
	owned.strip(id)
	out := &unstructured.Unstructured{Object: maps.Clone(live.Object)}
	if after != nil {
		out.Object = asMap(after.AsValue().Unstructured())
		owned.times[id] = &metav1.Time{Time: time.Now().UTC()}
	}
	out = out.DeepCopy()
	out.SetManagedFields(owned.encode())
	return out, nil
}

// lastAppliedFields returns the fields that still have the values which the client-side apply of kubectl wrote.
func lastAppliedFields(t target, live *unstructured.Unstructured) (*fieldpath.Set, bool) {
	old := &unstructured.Unstructured{}
	if json.Unmarshal([]byte(live.GetAnnotations()[lastApplied]), &old.Object) != nil || old.GetAPIVersion() != t.apiVersion() {
		return nil, false
	}
	then, err := typedAs(old, t.apiVersion())
	if err != nil {
		return nil, false
	}
	now, err := typedAs(live, t.apiVersion())
	if err != nil {
		return nil, false
	}
	set, err := then.ToFieldSet()
	if err != nil {
		return nil, false
	}
	changes, err := then.Compare(now)
	if err != nil {
		return nil, false
	}
	return set.Difference(changes.Modified).Difference(changes.Added).Difference(changes.Removed), true
}

// applyConflict returns the status error that names each conflict.
func applyConflict(conflicts merge.Conflicts) error {
	causes := make([]metav1.StatusCause, 0, len(conflicts))
	by := map[string][]string{}
	for _, c := range conflicts {
		manager := "conflict with " + printManager(c.Manager)
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: manager, Field: c.Path.String()})
		by[manager] = append(by[manager], c.Path.String())
	}
	if len(conflicts) == 1 {
		return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field))
	}
	var lines []string
	for _, manager := range slices.Sorted(maps.Keys(by)) {
		lines = append(lines, strings.Replace(manager, "conflict", "conflicts", 1)+":")
		for _, path := range by[manager] {
			lines = append(lines, "- "+path)
		}
	}
	return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n")))
}

func printManager(id string) string {
	var entry metav1.ManagedFieldsEntry
	if json.Unmarshal([]byte(id), &entry) != nil {
		return strconv.Quote(id)
	}
	out := strconv.Quote(entry.Manager)
	if entry.Subresource != "" {
		out += fmt.Sprintf(" with subresource %q", entry.Subresource)
	}
	if entry.Operation == metav1.ManagedFieldsOperationUpdate {
		out += " using " + entry.APIVersion
	}
	return out
}

// updaterOf returns the merger of an endpoint. Callers do not own fields that the endpoint does not write.
func updaterOf(t target) *merge.Updater {
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
	builder := merge.UpdaterBuilder{Converter: versions(t.kind), IgnoreFilter: filters}
	return builder.BuildUpdater()
}

// typedAs returns an object of a version: all versions of a kind have the same fields.
func typedAs(u *unstructured.Unstructured, apiVersion string, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	object := maps.Clone(u.Object)
	object["apiVersion"] = apiVersion
	return objectType().FromUnstructured(object, options...)
}

// versions converts between the versions of a kind.
type versions api.Kind

var errNoVersion = errors.New("no such version of the kind")

func (v versions) Convert(object *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	served := func(name string) bool { return apiVersionOf(api.Kind(v), name) == string(version) }
	if !slices.ContainsFunc(v.Versions, served) {
		return nil, errNoVersion
	}
	return typedAs(&unstructured.Unstructured{Object: asMap(object.AsValue().Unstructured())}, string(version), typed.AllowDuplicates)
}

// IsMissingVersionError reports whether the entry of a version is dropped, because it is not served any more.
func (versions) IsMissingVersionError(err error) bool { return errors.Is(err, errNoVersion) }

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
