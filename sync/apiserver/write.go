package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/state"
)

// Every write reads the object, plans the change, and stores it only if the object has not changed
// since (optimistic concurrency). The planning is the expensive part and runs in the caller's
// goroutine; the writer of the state file compares a revision and copies bytes. Each verb returns
// the stored form of the object after the write.

type writeOptions struct {
	manager    string // field manager
	force      bool   // apply patch: take fields from other managers; deletion: ignore dependents
	orphan     bool   // deletion: dependents stay, without their reference
	dryRun     bool
	validation string     // fieldValidation: "Strict", "Warn", "Ignore"
	warnings   *[]string  // receives texts for Warning headers; nil = dropped
	spec       []byte     // text of the spec of a new object, from cutSpec; nil = the object has it
	end        state.Tail // see api.StrictBody
	absent     bool       // the object is taken for absent until that turns out to be wrong
}

func (o writeOptions) warn(texts ...string) {
	if o.warnings != nil {
		*o.warnings = append(*o.warnings, texts...)
	}
}

// found is an object as it was read.
type found struct {
	object *unstructured.Unstructured // revealed, in the version of the target; nil = absent
	stored []byte
	rev    uint64
	// version is that of the spec, where it is not the one of the target.
	version string
}

// plan is a write before it is stored. Admission may change all of the object but its identity; it
// may read other objects, and must not keep anything: the plan is made again when the object has
// changed in between.
type plan struct {
	target  target
	options writeOptions
	old     *unstructured.Unstructured // revealed and read-only; nil = the object is new
	object  *unstructured.Unstructured // to store; for a removal the last form
	remove  bool
	keep    bool // nothing to store
	secrets []state.SecretWrite
}

// errChanged means that the object has changed since it was read.
var errChanged = errors.New("object changed since it was read")

// change reads the object, calls decide for a plan and carries it out. It retries when the object has
// changed in between, or was taken for absent and is not. For a removal and a dry run it returns the
// stored form of the plan's object.
func (s *Server) change(ctx context.Context, t target, o writeOptions, decide func(cur found) (*plan, error)) ([]byte, error) {
	defer s.serializeWrites(t)()
	for {
		cur, p, err := s.plan(ctx, t, o.absent, decide)
		if err != nil {
			return nil, err
		}
		out, err := s.carryOut(ctx, p, cur, o.dryRun)
		if !errors.Is(err, errChanged) {
			return out, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		o.absent = false
	}
}

// plan reads the object and plans its change, as many writes at a time as there are processors: a
// watch is one goroutine, and many that compute would keep it behind until its window has passed.
func (s *Server) plan(
	ctx context.Context, t target, absent bool, decide func(cur found) (*plan, error),
) (cur found, p *plan, err error) {
	s.plans <- struct{}{}
	defer func() { <-s.plans }()
	if !absent {
		cur, err = s.read(ctx, t)
	}
	if err != nil {
		return cur, nil, err
	}
	p, err = decide(cur)
	return cur, p, err
}

// read returns the object, revealed and in the version of the target.
func (s *Server) read(ctx context.Context, t target) (found, error) {
	if t.name == "" || strings.ContainsRune(t.namespace+t.name, 0) {
		return found{}, nil // validation refuses the name
	}
	o, err := s.store.Object(ctx, t.key())
	if errors.Is(err, state.ErrNotFound) {
		return found{}, nil
	}
	if err != nil {
		return found{}, fmt.Errorf("read %s %s/%s: %w", t.kind.Plural, t.namespace, t.name, err)
	}
	data, err := s.reveal(ctx, t.kind, o.Data)
	if err != nil {
		return found{}, err
	}
	object, err := decodeObject(data)
	if err != nil {
		return found{}, err
	}
	version := object.GroupVersionKind().Version
	object.SetAPIVersion(t.apiVersion())
	return found{object: object, stored: o.Data, rev: o.Revision, version: version}, nil
}

// carryOut stores a plan if the object is still cur, else it returns errChanged.
// The resourceVersion of the write replaces the one in the data.
func (s *Server) carryOut(ctx context.Context, p *plan, cur found, dryRun bool) ([]byte, error) {
	data, err := p.storedForm()
	if err != nil {
		return nil, err
	}
	keep := p.keep
	if !keep && !p.remove && cur.stored != nil {
		if keep, err = p.stores(data, cur); err != nil {
			return nil, err
		}
	}
	switch {
	case keep && (dryRun || len(p.secrets) == 0):
		return cur.stored, nil
	case dryRun && p.object.GetResourceVersion() == "":
		return encodeObject(p.object.Object) // without the empty resourceVersion
	case dryRun:
		return data, nil
	}
	m := state.Mutation{Delete: p.remove, Keep: keep, Secrets: p.secrets}
	if m.Also, err = s.dependents(ctx, p); err != nil {
		return nil, err
	}
	if !keep && !p.remove {
		from := max(find(data, "metadata").to, 0)
		if m.Tail = p.options.end; m.Tail.Size() != len(data)-from { // else it ends in that spec
			if m.Tail, err = s.store.Tail(data, from); err != nil {
				return nil, err
			}
		}
	}
	change := mutation(p.target.key(), m, data, cur)
	out, err := s.store.Mutate(ctx, change.Key, change.Fn)
	if err != nil {
		return nil, fmt.Errorf("write %s %s/%s: %w", p.target.kind.Plural, p.target.namespace, p.target.name, err)
	}
	if p.remove {
		return data, nil
	}
	return out.Data, nil
}

// mutation returns the change to a stored form if the object is still cur. It writes the revision
// into data where it has that length.
func mutation(key state.ObjectKey, m state.Mutation, data []byte, cur found) state.Change {
	place := find(data, "metadata", "resourceVersion")
	return state.Change{Key: key, Fn: func(now *state.Object, rev uint64) (state.Mutation, error) {
		if (now == nil) != (cur.stored == nil) || now != nil && now.Revision != cur.rev {
			return state.Mutation{}, errChanged
		}
		m := m
		if !m.Delete && !m.Keep {
			m.Data = data
			if revision := strconv.AppendQuote(nil, formatRevision(rev)); len(revision) == place.to-place.from {
				copy(place.of(data), revision)
			} else {
				m.Data = splice(data, place, revision)
			}
		}
		return m, nil
	}}
}

// noRevision has the length of a revision: they count from the microseconds since 1970.
const noRevision = "0000000000000000"

// storedForm encodes the object as it is stored. An object without
// resourceVersion gets noRevision, which the revision replaces.
func (p *plan) storedForm() ([]byte, error) {
	object := maps.Clone(p.object.Object)
	object["apiVersion"] = apiVersionOf(p.target.kind, p.target.kind.Versions[0])
	if p.target.kind.VersionedSpec {
		object["apiVersion"] = p.target.apiVersion()
	}
	if p.object.GetResourceVersion() == "" {
		withVersion := map[string]any{"resourceVersion": noRevision}
		maps.Copy(withVersion, asMap(object["metadata"]))
		object["metadata"] = withVersion
	}
	data, err := encodeObject(object)
	if err != nil || p.options.spec == nil {
		return data, err
	}
	return splice(data, find(data, "spec"), p.options.spec), nil
}

// stores reports whether what is stored is equal to data, the stored form of a plan. A spec may be
// stored as the text that cutSpec returned; most changes have another generation.
func (p *plan) stores(data []byte, cur found) (bool, error) {
	if bytes.Equal(data, cur.stored) {
		return true, nil
	}
	if !p.target.kind.VersionedSpec || p.object.GetGeneration() != p.old.GetGeneration() {
		return false, nil
	}
	stored, err := decodeObject(cur.stored)
	if err != nil {
		return false, err
	}
	before, err := encodeObject(stored.Object)
	return bytes.Equal(data, before), err
}

// Limits of generated names. Source: apiserver's SimpleNameGenerator: a name
// must also fit where only 63 characters are taken.
const (
	randomLength    = 5
	generatedLength = 63
	// nameAttempts is the number of attempts to generate a free name.
	nameAttempts = 8
)

// add stores a new object. obj is changed.
func (s *Server) add(ctx context.Context, t target, obj *unstructured.Unstructured, o writeOptions) (out []byte, err error) {
	if obj.GetResourceVersion() != "" {
		return nil, statusError(http.StatusInternalServerError, "", "resourceVersion should not be set on objects to be created")
	}
	if err := sameNamespace(obj, t.namespace); err != nil {
		return nil, err
	}
	clearServerFields(obj)
	record := t.kind.Kind == "HistoricJob" && o.manager == processManager // which has no other writer
	if o.spec == nil && !record {
		obj = updateOwners(t, t.empty(), obj, o.manager)
	}
	o.absent = !o.dryRun // nearly all that is created is new, and a look costs as much as the write
	base := obj.GetGenerateName()
	generated := obj.GetName() == "" && base != ""
	for range nameAttempts {
		if generated {
			obj.SetName(base[:min(len(base), generatedLength-randomLength)] + rand.String(randomLength))
		}
		t.name = obj.GetName()
		out, err = s.change(ctx, t, o, func(cur found) (*plan, error) {
			if cur.object == nil {
				return s.planNew(t, obj.DeepCopy(), o)
			}
			exists := apierrors.NewAlreadyExists(t.resource(), t.name)
			if cur.object.GetDeletionTimestamp() != nil {
				exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
			}
			return nil, exists
		})
		if !generated || !apierrors.IsAlreadyExists(err) {
			return out, err
		}
	}
	return nil, apierrors.NewGenerateNameConflict(t.resource(), t.name, 1)
}

// empty returns an object of the kind of a target without content.
func (t target) empty() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": t.apiVersion(), "kind": t.kind.Kind}}
}

// planNew returns the plan for a new object after validation and admission.
func (s *Server) planNew(t target, obj *unstructured.Unstructured, o writeOptions) (*plan, error) {
	clearServerFields(obj)
	obj.SetCreationTimestamp(metav1.Now())
	obj.SetUID(types.UID(uuid.NewUUID()))
	if t.kind.Status {
		delete(obj.Object, "status")
	}
	obj.SetGeneration(0)
	if t.kind.Generation || t.kind.CRD {
		obj.SetGeneration(1)
	}
	if err := validate(t, obj, nil); err != nil {
		return nil, err
	}
	p := &plan{target: t, options: o, object: obj}
	return p, s.admit(p)
}

// planUpdate returns the plan for the update of cur to obj. It applies the rules of every update
// (PUT, patch, apply). An update that removes the last finalizer of an object that is being deleted
// becomes a removal. obj is changed.
func (s *Server) planUpdate(t target, cur found, obj *unstructured.Unstructured, o writeOptions) (*plan, error) {
	old := cur.object
	switch given := obj.GetResourceVersion(); {
	case given == "" || given == "0":
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: t.kind.Group, Kind: t.kind.Plural}, t.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case given != old.GetResourceVersion():
		if _, err := parseRevision(given); err != nil {
			return nil, err
		}
		return nil, conflict(t, "the object has been modified; please apply your changes to the latest version and try again")
	}
	obj.SetSelfLink("")
	if t.subresource == "status" {
		onlyStatus(t.kind, obj, old)
	} else if t.kind.Status {
		moveMember(obj, old, "status")
	}
	countChange(t, obj, old)
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if at := old.GetCreationTimestamp(); !at.IsZero() {
		obj.SetCreationTimestamp(at)
	}
	if at := old.GetDeletionTimestamp(); at != nil {
		obj.SetDeletionTimestamp(at)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(grace)
	}
	if err := validate(t, obj, old); err != nil {
		return nil, err
	}
	keepTimes(old, obj)
	p := &plan{target: t, options: o, old: old, object: obj}
	if err := s.admit(p); err != nil {
		return nil, err
	}
	if old.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		p.remove = true
		p.secrets = nil // the values of a deleted object are not needed
		return p, s.admitRemoval(p)
	}
	return p, nil
}

// put replaces the object of the same name by obj.
func (s *Server) put(ctx context.Context, t target, obj *unstructured.Unstructured, o writeOptions) ([]byte, error) {
	if err := sameName(obj, t); err != nil {
		return nil, err
	}
	return s.change(ctx, t, o, func(cur found) (*plan, error) {
		if cur.object == nil {
			return nil, t.notFound()
		}
		if uid := obj.GetUID(); uid != "" && uid != cur.object.GetUID() {
			return nil, conflict(t, "Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, cur.object.GetUID())
		}
		return s.planUpdate(t, cur, updateOwners(t, cur.object, obj.DeepCopy(), o.manager), o)
	})
}

// remove deletes an object, or marks it as being deleted while it has
// finalizers. gone reports whether it is deleted; out is its last stored form.
func (s *Server) remove(ctx context.Context, t target, d metav1.DeleteOptions, warnings *[]string) (out []byte, gone bool, err error) {
	o := writeOptions{
		force:    d.GracePeriodSeconds != nil && *d.GracePeriodSeconds == 0,
		orphan:   d.PropagationPolicy != nil && *d.PropagationPolicy == metav1.DeletePropagationOrphan,
		dryRun:   len(d.DryRun) > 0,
		warnings: warnings,
	}
	out, err = s.change(ctx, t, o, func(cur found) (*plan, error) {
		if cur.object == nil {
			return nil, t.notFound()
		}
		if err := precondition(t, cur.object, d.Preconditions); err != nil {
			return nil, err
		}
		// The stored form: revealed values must not be stored.
		object, err := decodeObject(cur.stored)
		if err != nil {
			return nil, err
		}
		p := &plan{target: t.withVersion(cur.version), options: o, old: cur.object, object: object}
		p.end()
		gone = p.remove
		return p, s.admitRemoval(p)
	})
	return out, gone, err
}

// end plans the deletion of the object: the removal, or the mark while it has finalizers.
func (p *plan) end() {
	p.remove = len(p.old.GetFinalizers()) == 0
	p.keep = !p.remove && p.old.GetDeletionTimestamp() != nil
	if p.remove || p.keep {
		return
	}
	now := metav1.Now()
	p.object.SetDeletionTimestamp(&now)
	p.object.SetDeletionGracePeriodSeconds(new(int64))
	if p.target.kind.Generation {
		p.object.SetGeneration(p.object.GetGeneration() + 1)
	}
}

func precondition(t target, obj *unstructured.Unstructured, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	t.kind.Plural = t.kind.Kind // as the real server names it here
	if p.UID != nil && *p.UID != obj.GetUID() {
		return conflict(t, "the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *p.UID, obj.GetUID())
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return conflict(t, "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
			"The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion())
	}
	return nil
}

func conflict(t target, format string, args ...any) error {
	return apierrors.NewConflict(t.resource(), t.name, fmt.Errorf(format, args...))
}
