package apiserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"limpet/state"
)

// Controllers say again and again that all is well: a JSON patch of the status that
// gives other values to members which are there, by the manager that owns them. Such
// a write changes no owner, no member's name and nothing outside of these values but
// the time of the manager. It is made in the stored bytes, at a tenth of the cost of
// the long way (decode, merge, account for owners, validate, encode), and gives the
// same bytes. Whatever is not plainly of this kind goes the long way.

// mostLeafOps is how many operations such a patch has.
const mostLeafOps = 16

// leafPatch is such a patch, as far as can be said without the object.
type leafPatch struct {
	version string // that the object must have; "" = any
	sets    []leafSet
}

// leafSet gives a member below status a value.
type leafSet struct {
	path  []string // begins with status
	value any
}

// readLeafPatch answers false for a patch that may be of another kind.
func readLeafPatch(patch []byte) (p leafPatch, ok bool) {
	var operations []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if findings, err := kjson.UnmarshalStrict(patch, &operations); err != nil || len(findings) > 0 || len(operations) > mostLeafOps {
		return leafPatch{}, false
	}
	for i, o := range operations {
		if i == 0 && o.Op == "test" && o.Path == "/metadata/resourceVersion" {
			p.version, _ = o.Value.(string)
			if p.version == "" {
				return leafPatch{}, false
			}
			continue
		}
		path, below := strings.CutPrefix(o.Path, "/status/")
		if !below || o.Op != "add" && o.Op != "replace" {
			return leafPatch{}, false
		}
		set := leafSet{append([]string{"status"}, strings.Split(path, "/")...), o.Value}
		if !plainNames(set.path) || slices.ContainsFunc(p.sets, func(s leafSet) bool { return within(s.path, set.path) || within(set.path, s.path) }) {
			return leafPatch{}, false
		}
		p.sets = append(p.sets, set)
	}
	return p, len(p.sets) > 0
}

// plainNames says that names stand in JSON and in paths as they are.
func plainNames(names []string) bool {
	for _, name := range names {
		for _, c := range []byte(name) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
				return false
			}
		}
	}
	return true
}

// within says that a path is another or leads below it.
func within(path, other []string) bool {
	return len(path) >= len(other) && slices.Equal(path[:len(other)], other)
}

// patchLeaves carries out a patch of that kind; done is false when it is another.
func (s *Server) patchLeaves(ctx context.Context, t target, patch []byte, o writeOptions) (out []byte, done bool, err error) {
	if t.subresource != "status" || !t.kind.Status || isSecret(t.kind) || o.DryRun {
		return nil, false, nil
	}
	p, ok := readLeafPatch(patch)
	if !ok {
		return nil, false, nil
	}
	cur, err := s.store.Object(ctx, objectKey(t.kind, t.namespace, t.name))
	if err != nil {
		return nil, false, nil // the long way says why
	}
	data, ok := p.apply(cur.Data, metav1.ManagedFieldsEntry{Manager: o.Manager, APIVersion: t.apiVersion(), Subresource: t.subresource}, time.Now())
	if !ok {
		return nil, false, nil
	}
	out, err = s.mutate(ctx, t, found{stored: cur.Data, rev: cur.Revision}, state.Mutation{Data: data})
	if errors.Is(err, errMoved) {
		return nil, false, nil
	}
	return out, true, err
}

// apply answers the stored form afterwards, with the resourceVersion as it was.
// false means that the patch is not of this kind for this object.
func (p leafPatch) apply(data []byte, manager metav1.ManagedFieldsEntry, now time.Time) ([]byte, bool) {
	meta := find(data, "metadata")
	if p.version != "" && p.version != text(data, member(data, meta, "resourceVersion")) ||
		member(data, meta, "deletionTimestamp").found() || member(data, meta, "ownerReferences").found() {
		return nil, false
	}
	var changed [][]string
	for _, set := range p.sets {
		place := find(data, set.path...)
		if !place.found() {
			return nil, false
		}
		var old any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(place.of(data), &old); err != nil || !changedLeaves(set.path, old, set.value, &changed) {
			return nil, false
		}
	}
	if len(changed) == 0 {
		return nil, false
	}
	place := find(data, "metadata", "managedFields")
	if !place.found() {
		return nil, false
	}
	entries, ok := renewed(place.of(data), manager, changed, now)
	if !ok {
		return nil, false
	}
	data = splice(data, place, entries)
	for _, set := range p.sets {
		encoded, err := encodeValue(set.value)
		if err != nil {
			return nil, false
		}
		data = splice(data, find(data, set.path...), encoded)
	}
	return data, true
}

// changedLeaves adds the paths of the values that are others now. false means that
// members came or went, or a value became one of another kind.
func changedLeaves(path []string, old, now any, changed *[][]string) bool {
	before, isMap := old.(map[string]any)
	after, staysMap := now.(map[string]any)
	switch {
	case isMap != staysMap || len(before) != len(after):
		return false
	case !isMap:
		if !sameKind(old, now) {
			return false
		}
		if !value.Equals(value.NewValueInterface(old), value.NewValueInterface(now)) {
			*changed = append(*changed, path)
		}
		return true
	}
	for name, v := range before {
		w, stays := after[name]
		if !stays || !plainNames([]string{name}) || !changedLeaves(append(slices.Clip(path), name), v, w, changed) {
			return false
		}
	}
	return true
}

func sameKind(a, b any) bool {
	switch a.(type) {
	case string:
		_, same := b.(string)
		return same
	case bool:
		_, same := b.(bool)
		return same
	case int64:
		_, same := b.(int64)
		return same
	case []any:
		_, same := b.([]any)
		return same
	}
	return false
}

// entry is one of metadata.managedFields.
type entry struct {
	raw                                               []byte
	manager, operation, apiVersion, subresource, time string
}

// renewed answers managedFields after a manager changed leaves that it owns and
// nobody else does, or false when that is not so, or not plain to see.
func renewed(managed []byte, manager metav1.ManagedFieldsEntry, changed [][]string, now time.Time) ([]byte, bool) {
	var all []entry
	own := -1
	for raw := range elements(managed) {
		e := entry{raw: raw, manager: text(raw, find(raw, "manager")), operation: text(raw, find(raw, "operation")),
			apiVersion: text(raw, find(raw, "apiVersion")), subresource: text(raw, find(raw, "subresource")), time: text(raw, find(raw, "time"))}
		fields := find(raw, "fieldsV1")
		if text(raw, find(raw, "fieldsType")) != fieldsV1 || !fields.found() || fields.to-fields.from <= len("{}") || e.apiVersion == "" ||
			e.operation != string(metav1.ManagedFieldsOperationUpdate) && e.operation != string(metav1.ManagedFieldsOperationApply) ||
			e.time != "" && len(e.time) != len(time.RFC3339)-len("07:00") || slices.ContainsFunc(all, e.sameManager) {
			return nil, false
		}
		mine := e.manager == manager.Manager && e.apiVersion == manager.APIVersion && e.subresource == manager.Subresource &&
			e.operation == string(metav1.ManagedFieldsOperationUpdate) && e.time != ""
		for _, path := range changed {
			if listed, has := owned(raw, fields, path); mine && !has || !mine && listed {
				return nil, false
			}
		}
		if mine {
			own = len(all)
		}
		all = append(all, e)
	}
	if own < 0 || len(all) > maxUpdaters {
		return nil, false
	}
	e := &all[own]
	e.time = now.UTC().Format(time.RFC3339)
	e.raw = splice(e.raw, find(e.raw, "time"), strconv.AppendQuote(nil, e.time))
	slices.SortFunc(all, func(a, b entry) int { // as byAge
		return cmp.Or(cmp.Compare(a.operation, b.operation), cmp.Compare(a.time, b.time), cmp.Compare(a.manager, b.manager),
			cmp.Compare(a.apiVersion, b.apiVersion), cmp.Compare(a.subresource, b.subresource))
	})
	out := append(make([]byte, 0, len(managed)), '[')
	for i, e := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e.raw...)
	}
	return append(out, ']'), true
}

// sameManager says that two entries are of one manager, as managerID has it.
func (e entry) sameManager(f entry) bool {
	return e.manager == f.manager && e.operation == f.operation && e.subresource == f.subresource &&
		(e.apiVersion == f.apiVersion || e.operation == string(metav1.ManagedFieldsOperationApply))
}

// owned says whether fieldsV1 lists a path or anything below it, and whether the
// path itself is in it.
func owned(raw []byte, fields span, path []string) (listed, has bool) {
	for _, name := range path {
		if fields = member(raw, fields, "f:"+name); !fields.found() {
			return false, false
		}
	}
	return true, fields.to-fields.from == len("{}") || member(raw, fields, ".").found()
}
