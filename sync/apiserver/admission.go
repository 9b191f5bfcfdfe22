package apiserver

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// Admission goes defaults, rules of the object, rules between objects, and
// last the sealing of secrets: the rules want to see what was sent, and nothing
// after them may see it.

// admit decides whether a write may be stored, and what else belongs into it:
// defaults and sealed values. The error is an *apierrors.StatusError.
func (s *Server) admit(r *admitRequest) error {
	ctx := context.Background() // a write that was asked for is decided, whoever still waits
	if r.Operation == opDelete {
		if err := s.checkEmpty(ctx, r); err != nil {
			return internal(err)
		}
		if !r.Gone {
			return nil
		}
		return internal(s.forgetAll(ctx, r))
	}
	if r.Subresource != "" {
		return s.admitBrought(ctx, r)
	}
	admission.Default(r.Object)
	admission.RemoveMintedToken(r.Object, r.Old)
	if s.finalizers && r.Old == nil {
		admission.DefaultFinalizers(r.Object)
	}
	if err := s.check(ctx, r); err != nil {
		return err
	}
	dropLastApplied(r.Object)
	if isSecret(r.Kind) {
		// Old is revealed, so that it is compared before anything is sealed.
		settle(r)
		return internal(s.sealData(ctx, r))
	}
	if err := s.sealInline(ctx, r); err != nil {
		return internal(err)
	}
	settle(r)
	return nil
}

// settle decides again what the core decided before defaults and seals were in
// place: whether the write changes anything. Applying the same file twice must
// not look like a change.
func settle(r *admitRequest) {
	if r.Old == nil {
		return
	}
	if r.Kind.Generation {
		generation := r.Old.GetGeneration()
		if !sameContent(r.Object, r.Old) {
			generation++
		}
		r.Object.SetGeneration(generation)
	}
	keepTimes(r.Old, r.Object)
}

// check applies the rules of one object and those between objects.
func (s *Server) check(ctx context.Context, r *admitRequest) error {
	if r.Kind.Group == api.ProvisioningGroup && r.Kind.Kind == "Job" && r.Old != nil {
		if key := admission.ChangedAuthor(r.Object.GetAnnotations(), r.Old.GetAnnotations()); key != "" {
			return apierrors.NewBadRequest("the annotation " + key + " cannot be changed")
		}
	}
	siblings, err := s.siblings(ctx, r)
	if err != nil {
		return internal(err)
	}
	errs := admission.Check(r.Object, r.Old)
	errs = append(errs, admission.CheckSiblings(r.Object, r.Old, siblings)...)
	errs = append(errs, admission.CheckQuota(r.Object, r.Old, siblings, s.most)...)
	if len(errs) > 0 {
		return invalid(r.Kind, r.Name, errs)
	}
	for _, text := range admission.Warnings(r.Object, nil) {
		r.warn(text)
	}
	return nil
}

// siblings are the other objects of the namespace that the rules of this one
// look at.
func (s *Server) siblings(ctx context.Context, r *admitRequest) ([]*unstructured.Unstructured, error) {
	if !admission.NeedsSiblings(r.Object, r.Old) && !admission.NeedsCount(r.Object, r.Old, s.most) {
		return nil, nil
	}
	return s.listObjects(ctx, r.Kind, r.Namespace, labels.Everything())
}

// alone lets the writes of a kind that has rules between its objects go one by
// one, because each of two that are decided side by side would look lawful. Call
// what it returns when the write is stored. Status may go beside: no rule is
// about it.
func (s *Server) alone(t target) (done func()) {
	if t.kind.Group != api.ProvisioningGroup || t.kind.Kind != "Repository" || t.subresource != "" {
		return func() {}
	}
	s.between.Lock()
	return s.between.Unlock
}

func (r *admitRequest) warn(text string) {
	if r.Warnings != nil {
		*r.Warnings = append(*r.Warnings, text)
	}
}

// internal makes any error a Status that can be answered.
func internal(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
