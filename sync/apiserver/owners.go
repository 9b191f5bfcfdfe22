package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// owners are the decoded managedFields of an object.
type owners struct {
	sets  fieldpath.ManagedFields // by identifier
	times map[string]*metav1.Time
}

// decodeOwners returns managedFields in the form that merges. With an error there are none.
func decodeOwners(entries []metav1.ManagedFieldsEntry) (owners, error) {
	none := owners{fieldpath.ManagedFields{}, map[string]*metav1.Time{}}
	out := owners{fieldpath.ManagedFields{}, map[string]*metav1.Time{}}
	for _, entry := range entries {
		applied := entry.Operation == metav1.ManagedFieldsOperationApply
		if !applied && entry.Operation != metav1.ManagedFieldsOperationUpdate {
			return none, errors.New("operation must be `Apply` or `Update`")
		}
		if entry.APIVersion == "" || entry.FieldsType != "FieldsV1" {
			return none, errors.New("apiVersion must not be empty, fieldsType must be FieldsV1")
		}
		set := fieldpath.NewSet()
		if entry.FieldsV1 != nil {
			if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
				return none, err
			}
		}
		id := identifierOf(entry)
		out.sets[id] = fieldpath.NewVersionedSet(set, fieldpath.APIVersion(entry.APIVersion), applied)
		out.times[id] = entry.Time
	}
	return out, nil
}

// identifierOf returns the key of an entry: an applier stays the same one in each version.
func identifierOf(entry metav1.ManagedFieldsEntry) string {
	entry.FieldsType, entry.FieldsV1, entry.Time = "", nil, nil
	if entry.Operation == metav1.ManagedFieldsOperationApply {
		entry.APIVersion = ""
	}
	text, _ := json.Marshal(entry) // strings
	return string(text)
}

func identifier(t target, manager string, operation metav1.ManagedFieldsOperationType) string {
	return identifierOf(metav1.ManagedFieldsEntry{
		Manager: cmp.Or(manager, "unknown"), Operation: operation, APIVersion: t.apiVersion(), Subresource: t.subresource})
}

// update gives manager the fields in which obj differs from live.
func (o *owners) update(t target, live, obj *unstructured.Unstructured, manager string) error {
	before, err := typedAs(live, t.apiVersion(), typed.AllowDuplicates)
	if err != nil {
		return err
	}
	after, err := typedAs(obj, t.apiVersion(), typed.AllowDuplicates)
	if err != nil {
		return err
	}
	_, sets, err := updaterOf(t).Update(before, after, fieldpath.APIVersion(t.apiVersion()), o.sets, thisUpdate)
	if err != nil {
		return err
	}
	o.sets = sets
	o.strip(thisUpdate)
	if set := o.sets[thisUpdate]; set != nil {
		delete(o.sets, thisUpdate)
		id := identifier(t, manager, metav1.ManagedFieldsOperationUpdate)
		if previous := o.sets[id]; previous != nil {
			set = fieldpath.NewVersionedSet(set.Set().Union(previous.Set()), set.APIVersion(), set.Applied())
		}
		o.sets[id], o.times[id] = set, &metav1.Time{Time: time.Now().UTC()}
	}
	o.limit()
	return nil
}

// strip takes the fields without managers from one.
func (o *owners) strip(id string) {
	set := o.sets[id]
	if set == nil {
		return
	}
	if left := set.Set().Difference(unowned); left.Empty() {
		delete(o.sets, id)
	} else {
		o.sets[id] = fieldpath.NewVersionedSet(left, set.APIVersion(), set.Applied())
	}
}

// limit merges the oldest entries of updates, those of a version into one, until maxUpdaters are left.
func (o *owners) limit() {
	var updaters []string
	for id, set := range o.sets {
		if !set.Applied() {
			updaters = append(updaters, id)
		}
	}
	slices.SortFunc(updaters, func(a, b string) int {
		return cmp.Or(cmp.Compare(seconds(o.times[a]), seconds(o.times[b])), cmp.Compare(a, b))
	})
	first := map[fieldpath.APIVersion]string{}
	left := len(updaters)
	for _, id := range updaters {
		if left <= maxUpdaters {
			return
		}
		set := o.sets[id]
		version := set.APIVersion()
		oldest, ok := first[version]
		if !ok {
			first[version] = id
			continue
		}
		bucket := identifierOf(metav1.ManagedFieldsEntry{Manager: oldUpdates, Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: string(version)})
		if o.sets[bucket] == nil {
			o.sets[bucket] = o.sets[oldest]
			delete(o.sets, oldest)
		}
		o.sets[bucket] = fieldpath.NewVersionedSet(set.Set().Union(o.sets[bucket].Set()), version, false)
		o.times[bucket] = o.times[id]
		delete(o.sets, id)
		left--
	}
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// encode returns the managedFields, nil without any.
func (o *owners) encode() []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for id, set := range o.sets {
		var entry metav1.ManagedFieldsEntry
		raw, err := set.Set().ToJSON()
		if err != nil || json.Unmarshal([]byte(id), &entry) != nil {
			continue // neither fails for what decodeOwners and identifier made
		}
		entry.APIVersion, entry.FieldsType, entry.Time = string(set.APIVersion()), "FieldsV1", o.times[id]
		entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
		out = append(out, entry)
	}
	slices.SortFunc(out, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(seconds(a.Time), seconds(b.Time)),
			cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
	})
	return out
}
