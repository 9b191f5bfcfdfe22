package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// metadata.managedFields tells which client owns which field. Every write is
// accounted for; apply also merges by it. The rules are those of the API
// machinery (its package managedfields, which is not linked because it brings
// an OpenAPI parser of three megabytes along).

const (
	// maxUpdaters is how many clients that update are told apart; older ones
	// are merged into one entry. Source: API machinery.
	maxUpdaters = 10
	// oldUpdaters is the name of that entry.
	oldUpdaters = "ancient-changes"
	// beforeApply owns the fields of an object that was never tracked until its
	// first apply.
	beforeApply = "before-first-apply"
	fieldsV1    = "FieldsV1"
)

// untracked are the fields that nobody owns.
var untracked = func() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, name := range []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"} {
		set.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	return set
}()

// ownership is the decoded managedFields: sets of fields by manager, where a
// manager is the JSON of its entry without fields and time.
type ownership struct {
	sets  fieldpath.ManagedFields
	times map[string]*metav1.Time
}

func noOwnership() ownership {
	return ownership{sets: fieldpath.ManagedFields{}, times: map[string]*metav1.Time{}}
}

// decodeOwnership reads managedFields; entries that cannot be read are an error.
func decodeOwnership(entries []metav1.ManagedFieldsEntry) (ownership, error) {
	o := noOwnership()
	for i, e := range entries {
		switch {
		case e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate:
			return o, errors.New("operation must be `Apply` or `Update`")
		case e.APIVersion == "":
			return o, errors.New("apiVersion must not be empty")
		case e.FieldsType != fieldsV1:
			return o, fmt.Errorf("invalid fieldsType %q in managed fields entry %d", e.FieldsType, i)
		}
		id, err := managerID(e)
		if err != nil {
			return o, err
		}
		set := fieldpath.NewSet()
		if e.FieldsV1 != nil {
			if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
				return o, fmt.Errorf("read fields of manager %q: %w", e.Manager, err)
			}
		}
		o.sets[id] = fieldpath.NewVersionedSet(set, fieldpath.APIVersion(e.APIVersion), e.Operation == metav1.ManagedFieldsOperationApply)
		o.times[id] = e.Time
	}
	return o, nil
}

// managerID names a manager. One that applies is the same in all versions.
func managerID(e metav1.ManagedFieldsEntry) (string, error) {
	e.FieldsType, e.FieldsV1, e.Time = "", nil, nil
	if e.Operation == metav1.ManagedFieldsOperationApply {
		e.APIVersion = ""
	}
	id, err := json.Marshal(e)
	return string(id), err
}

// encode writes the entries, appliers first, then by time and name.
func (o ownership) encode() ([]metav1.ManagedFieldsEntry, error) {
	var out []metav1.ManagedFieldsEntry
	for id, set := range o.sets {
		var e metav1.ManagedFieldsEntry
		if err := json.Unmarshal([]byte(id), &e); err != nil {
			return nil, fmt.Errorf("read manager: %w", err)
		}
		raw, err := set.Set().ToJSON()
		if err != nil {
			return nil, fmt.Errorf("write fields of manager %q: %w", e.Manager, err)
		}
		e.APIVersion = string(set.APIVersion())
		if set.Applied() {
			e.Operation = metav1.ManagedFieldsOperationApply
		}
		e.FieldsType = fieldsV1
		e.FieldsV1 = &metav1.FieldsV1{}
		e.FieldsV1.SetRawBytes(raw)
		e.Time = o.times[id]
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return byAge(out[i], out[j]) < 0 })
	return out, nil
}

func byAge(a, b metav1.ManagedFieldsEntry) int {
	return cmp.Or(
		cmp.Compare(string(a.Operation), string(b.Operation)),
		compareSeconds(a.Time, b.Time),
		cmp.Compare(a.Manager, b.Manager),
		cmp.Compare(a.APIVersion, b.APIVersion),
		cmp.Compare(a.Subresource, b.Subresource),
	)
}

// track gives the fields that differ between live and obj to the manager of
// the write, and stores the result in obj. A client may also send managedFields
// itself; an empty list or entry forgets all.
func (m *merger) track(live, obj *unstructured.Unstructured, manager, apiVersion, subresource string) error {
	own, err := m.startingFrom(live, obj, subresource != "")
	if err != nil {
		return err
	}
	obj.SetManagedFields(nil)
	// An object that is stored without owners is not tracked until it is applied.
	if len(own.sets) > 0 || live.GetUID() == "" {
		if own, err = m.update(live, obj, own, manager, apiVersion, subresource); err != nil {
			return err
		}
	}
	return own.store(obj)
}

// startingFrom chooses between the owners that were sent and those stored.
func (m *merger) startingFrom(live, obj *unstructured.Unstructured, onlyLive bool) (ownership, error) {
	stored := func() ownership {
		if o, err := decodeOwnership(live.GetManagedFields()); err == nil {
			return o
		}
		return noOwnership()
	}
	if onlyLive {
		return stored(), nil
	}
	sent := obj.GetManagedFields()
	raw, given, _ := unstructured.NestedSlice(obj.Object, "metadata", "managedFields")
	if given && (len(raw) == 0 || len(sent) == 1 && isZero(sent[0])) {
		return noOwnership(), nil
	}
	if o, err := decodeOwnership(sent); err == nil && len(o.sets) > 0 {
		return o, nil
	}
	return stored(), nil
}

func isZero(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == "" && e.Operation == "" && e.APIVersion == "" && e.Time == nil && e.FieldsType == "" && e.FieldsV1 == nil && e.Subresource == ""
}

// update accounts for one write.
func (m *merger) update(live, obj *unstructured.Unstructured, own ownership, manager, apiVersion, subresource string) (ownership, error) {
	id, err := managerID(metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: apiVersion, Subresource: subresource})
	if err != nil {
		return own, err
	}
	before, err := m.typedOf(live)
	if err != nil {
		return own, err
	}
	after, err := m.typedOf(obj)
	if err != nil {
		return own, err
	}
	// The write is accounted for under a name of its own, so that its time is
	// only renewed when it took fields.
	const self = "current-operation"
	_, own.sets, err = m.updater.Update(before, after, fieldpath.APIVersion(apiVersion), own.sets, self)
	if err != nil {
		return own, fmt.Errorf("update field managers: %w", err)
	}
	own.strip(self)
	if set, ok := own.sets[self]; ok {
		delete(own.sets, self)
		if previous, ok := own.sets[id]; ok {
			set = fieldpath.NewVersionedSet(set.Set().Union(previous.Set()), set.APIVersion(), set.Applied())
		}
		own.sets[id] = set
		own.times[id] = &metav1.Time{Time: time.Now().UTC()}
	}
	return own.capped()
}

// strip takes the untracked fields from a manager.
func (o ownership) strip(id string) {
	set, ok := o.sets[id]
	if !ok {
		return
	}
	rest := set.Set().Difference(untracked)
	if rest.Empty() {
		delete(o.sets, id)
		return
	}
	o.sets[id] = fieldpath.NewVersionedSet(rest, set.APIVersion(), set.Applied())
}

// capped merges the oldest updaters of each version until there are few enough.
func (o ownership) capped() (ownership, error) {
	var updaters []string
	for id, set := range o.sets {
		if !set.Applied() {
			updaters = append(updaters, id)
		}
	}
	sort.Slice(updaters, func(i, j int) bool {
		a, b := updaters[i], updaters[j]
		return cmp.Or(compareSeconds(o.times[a], o.times[b]), cmp.Compare(a, b)) < 0
	})
	left := len(updaters)
	first := map[fieldpath.APIVersion]string{} // the oldest updater of each version
	for _, id := range updaters {
		if left <= maxUpdaters {
			break
		}
		set := o.sets[id]
		oldest, ok := first[set.APIVersion()]
		if !ok {
			first[set.APIVersion()] = id
			continue
		}
		bucket, err := managerID(metav1.ManagedFieldsEntry{Manager: oldUpdaters, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: string(set.APIVersion())})
		if err != nil {
			return o, err
		}
		if _, ok := o.sets[bucket]; !ok {
			o.sets[bucket] = o.sets[oldest]
			delete(o.sets, oldest)
		}
		o.sets[bucket] = fieldpath.NewVersionedSet(set.Set().Union(o.sets[bucket].Set()), set.APIVersion(), false)
		o.times[bucket] = o.times[id]
		delete(o.sets, id)
		left--
	}
	return o, nil
}

// store writes the owners into the object.
func (o ownership) store(obj *unstructured.Unstructured) error {
	entries, err := o.encode()
	if err != nil {
		return err
	}
	obj.SetManagedFields(entries)
	return nil
}

// keepTimes puts the old times back when nothing but them has changed, so that
// a write without effect stays one.
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
