package apiserver

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The writing verbs, without HTTP. Each returns the stored form of the object
// after the write.

// add stores a new object. obj is changed.
func (s *Server) add(ctx context.Context, t target, obj *unstructured.Unstructured, o writeOptions) ([]byte, error) {
	if obj.GetResourceVersion() != "" {
		return nil, statusError(http.StatusInternalServerError, "", "resourceVersion should not be set on objects to be created")
	}
	if err := sameNamespace(obj, t.namespace); err != nil {
		return nil, err
	}
	clearServerFields(obj)
	o.warn(uniqueOwners(obj)...)
	empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": t.apiVersion(), "kind": t.kind.Kind}}
	obj, err := s.fields.update(t, empty, obj, o.Manager)
	if err != nil {
		return nil, err
	}
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		return s.addNamed(ctx, t, obj, o)
	}
	var out []byte
	for range nameAttempts {
		attempt := obj.DeepCopy()
		generateName(attempt)
		out, err = s.addNamed(ctx, t, attempt, o)
		if !apierrors.IsAlreadyExists(err) {
			return out, err
		}
		t.name = attempt.GetName()
	}
	return nil, apierrors.NewGenerateNameConflict(groupResource(t.kind), t.name, 1)
}

// addNamed is one attempt to store a new object.
func (s *Server) addNamed(ctx context.Context, t target, obj *unstructured.Unstructured, o writeOptions) ([]byte, error) {
	defer s.serializeWrites(t)()
	t.name = obj.GetName()
	p, err := s.planNew(t, obj, o)
	if err != nil {
		return nil, err
	}
	exists := apierrors.NewAlreadyExists(groupResource(t.kind), t.name)
	out, err := s.create(ctx, t, p, o.DryRun, exists)
	if apierrors.IsAlreadyExists(err) {
		if old, readErr := s.read(ctx, t); readErr == nil && old.object != nil && old.object.GetDeletionTimestamp() != nil {
			exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
		}
	}
	return out, err
}

// planNew returns the plan for a new object after validation and admission.
func (s *Server) planNew(t target, obj *unstructured.Unstructured, o writeOptions) (plan, error) {
	initMetadata(t.kind, obj)
	if err := validate(t, obj, nil); err != nil {
		return plan{}, err
	}
	o.warn(finalizerWarnings(obj, nil)...)
	p := plan{object: obj}
	return p, s.runAdmission(t, opCreate, &p, nil, o)
}

// runAdmission runs admission, which may change or reject a plan.
func (s *Server) runAdmission(t target, operation string, p *plan, old *unstructured.Unstructured, o writeOptions) error {
	r := &admitRequest{
		Kind:        t.kind,
		Subresource: t.subresource,
		Operation:   operation,
		Namespace:   t.namespace,
		Name:        t.name,
		Object:      p.object,
		Old:         old,
		Gone:        operation == opDelete && p.remove,
		Force:       operation == opDelete && o.Force,
		Secrets:     &p.secrets,
		Warnings:    o.Warnings,
	}
	if operation == opDelete {
		r.Object = nil
	}
	if r.Warnings == nil {
		r.Warnings = new([]string)
	}
	return s.admit(r)
}

// replace plans the update of cur to obj. It applies the rules of every update
// (PUT, patch, apply). An update that removes the last finalizer of an object
// that is being deleted becomes a removal. obj is changed.
func (s *Server) replace(t target, cur found, obj *unstructured.Unstructured, o writeOptions) (plan, error) {
	old := cur.object
	if err := sameNamespace(obj, t.namespace); err != nil {
		return plan{}, err
	}
	switch given := obj.GetResourceVersion(); {
	case given == "" || given == "0":
		return plan{}, apierrors.NewInvalid(schema.GroupKind{Group: t.kind.Group, Kind: t.kind.Plural}, t.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case given != old.GetResourceVersion():
		if _, err := parseRevision(given); err != nil {
			return plan{}, err
		}
		return plan{}, apierrors.NewConflict(groupResource(t.kind), t.name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	carryOver(t, obj, old)
	if err := validate(t, obj, old); err != nil {
		return plan{}, err
	}
	if t.subresource == "" {
		o.warn(finalizerWarnings(obj, old)...)
	}
	keepTimes(old, obj)
	p := plan{object: obj}
	if err := s.runAdmission(t, opUpdate, &p, old, o); err != nil {
		return plan{}, err
	}
	if old.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		p.remove = true
		p.secrets = nil // the values of a deleted object are not needed
		return p, s.runAdmission(t, opDelete, &p, old, o)
	}
	return p, nil
}

// put replaces the object of the same name by obj.
func (s *Server) put(ctx context.Context, t target, obj *unstructured.Unstructured, o writeOptions) ([]byte, error) {
	if err := sameName(obj, t.namespace, t.name); err != nil {
		return nil, err
	}
	o.warn(uniqueOwners(obj)...)
	return s.change(ctx, t, o.DryRun, func(cur found) (plan, error) {
		if cur.object == nil {
			return plan{}, notFound(t.kind, t.name)
		}
		if uid := obj.GetUID(); uid != "" && uid != cur.object.GetUID() {
			//lint:ignore ST1005 the text of the real server
			err := fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, cur.object.GetUID())
			return plan{}, apierrors.NewConflict(groupResource(t.kind), t.name, err)
		}
		wanted, err := s.fields.update(t, cur.object, obj.DeepCopy(), o.Manager)
		if err != nil {
			return plan{}, err
		}
		return s.replace(t, cur, wanted, o)
	})
}

// remove deletes an object, or marks it as being deleted while it has
// finalizers. gone reports whether it is deleted; out is its last stored form.
func (s *Server) remove(ctx context.Context, t target, o metav1.DeleteOptions, w writeOptions) (out []byte, gone bool, err error) {
	w.Force = o.GracePeriodSeconds != nil && *o.GracePeriodSeconds == 0
	out, err = s.change(ctx, t, w.DryRun, func(cur found) (plan, error) {
		if cur.object == nil {
			return plan{}, notFound(t.kind, t.name)
		}
		if err := precondition(t, cur.object, o.Preconditions); err != nil {
			return plan{}, err
		}
		gone = len(cur.object.GetFinalizers()) == 0
		// The stored form: revealed values must not be stored.
		object, err := decodeObject(cur.stored)
		if err != nil {
			return plan{}, err
		}
		p := plan{object: object, remove: gone}
		if err := s.runAdmission(t, opDelete, &p, cur.object, w); err != nil || gone {
			return p, err
		}
		if object.GetDeletionTimestamp() != nil {
			p.keep = true
			return p, nil
		}
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
		object.SetDeletionGracePeriodSeconds(new(int64))
		if t.kind.Generation {
			object.SetGeneration(object.GetGeneration() + 1)
		}
		return p, nil
	})
	return out, gone, err
}

func precondition(t target, obj *unstructured.Unstructured, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	gr := schema.GroupResource{Group: t.kind.Group, Resource: t.kind.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(gr, t.name, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(gr, t.name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
				"The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// warn records texts for Warning headers.
func (o writeOptions) warn(texts ...string) {
	if o.Warnings != nil {
		*o.Warnings = append(*o.Warnings, texts...)
	}
}
