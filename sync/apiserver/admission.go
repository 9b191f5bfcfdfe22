package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// The core (verbs, storage, watches, patches) implements Kubernetes and has no
// knowledge of Grafana. The rules of our own kinds are called in three places:
//
//	admit, admitRemoval   before an object is stored or removed     admission.go
//	reveal                before a stored object is sent            secure.go
//	serveJobs             routes below a Repository                 jobs.go
//
// Admission runs in this order: defaults, rules of the object, rules between objects, sealing of
// secrets. The rules need the values that were sent, and nothing after them may see those values.
// Its decisions do not depend on the client's connection.

// admit validates a write and completes it with defaults and sealed values. The error is an
// *apierrors.StatusError.
func (s *Server) admit(p *plan) error {
	ctx := context.Background()
	if p.target.subresource != "" {
		if len(statusValues(p.target.kind, p.object)) == 0 {
			return nil
		}
		if errs := admission.CheckSecure(p.object, p.old); len(errs) > 0 {
			return p.invalid(errs)
		}
		if err := s.sealInline(ctx, p); err != nil {
			return internal(err)
		}
		keepTimes(p.old, p.object)
		return nil
	}
	admission.Default(p.object)
	admission.RemoveMintedToken(p.object, p.old)
	if s.options.Finalizers && (p.old == nil || len(p.old.GetFinalizers()) == 0) {
		admission.DefaultFinalizers(p.object)
	}
	if err := s.check(ctx, p); err != nil {
		return err
	}
	dropLastApplied(p.object)
	var err error
	if isSecret(p.target.kind) {
		settle(p) // before the sealing, because old is revealed
		err = s.sealData(ctx, p)
	} else {
		err = s.sealInline(ctx, p)
		settle(p)
	}
	return internal(err)
}

// settle decides again, now with defaults and seals in place, whether the write
// changes anything. Applying the same file twice must not count as a change.
func settle(p *plan) {
	if p.old != nil {
		countChange(p.target, p.object, p.old)
		keepTimes(p.old, p.object)
	}
}

// check applies the rules of one object and those between objects.
func (s *Server) check(ctx context.Context, p *plan) error {
	if p.target.kind.Group == api.ProvisioningGroup && p.target.kind.Kind == "Job" && p.old != nil {
		if key := admission.ChangedAuthor(p.object.GetAnnotations(), p.old.GetAnnotations()); key != "" {
			return badRequest("the annotation %s cannot be changed", key)
		}
	}
	spec := asMap(p.object.Object["spec"])
	if p.target.kind.Kind == "Job" && (p.old == nil || !sameValue(spec, asMap(p.old.Object["spec"]))) {
		if err := s.checkJob(ctx, p, spec); err != nil {
			return err
		}
	}
	errs, err := admission.CheckSiblings(p.object, p.old, s.options.MaxRepositories, func() ([]*unstructured.Unstructured, error) {
		return s.repositories(ctx, p.target.namespace)
	})
	if err != nil {
		return internal(err)
	}
	errs = append(admission.Check(p.object, p.old), errs...)
	if len(errs) > 0 {
		return p.invalid(errs)
	}
	var unknown []string // kept unless the client is strict: a newer one may read them
	for _, f := range admission.UnknownFields(p.object) {
		unknown = append(unknown, f.String())
	}
	if p.old != nil { // stored ones hinder no other change
		for _, f := range admission.UnknownFields(p.old) {
			unknown = slices.DeleteFunc(unknown, func(text string) bool { return text == f.String() })
		}
	}
	if err := p.options.report(unknown); err != nil {
		return badRequest("%s", err)
	}
	p.options.warn(admission.Warnings(p.object)...)
	return nil
}

// repositories returns those of a namespace.
func (s *Server) repositories(ctx context.Context, namespace string) (all []*unstructured.Unstructured, err error) {
	page, err := s.page(ctx, target{version: api.Repositories.Version, namespace: namespace}.of("repositories"), everything())
	for _, item := range page.items {
		object, err := decodeObject(item)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, err
}

// checkAction refuses the action of a job that no agent would run.
func (s *Server) checkAction(t target, action string) error {
	if len(s.options.Actions) == 0 || slices.Contains(s.options.Actions, action) {
		return nil
	}
	return (&plan{target: t}).invalid(field.ErrorList{field.NotSupported(field.NewPath("spec", "action"), action, s.options.Actions)})
}

// invalid returns a 422 status error with one cause per fault.
func (p *plan) invalid(errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: p.target.kind.Group, Kind: p.target.kind.Kind}, p.target.name, errs)
}

// serializeWrites serializes the writes of a kind that has rules between its objects: two
// concurrent writes could each be valid and break a rule together. The caller calls done when the
// write is stored. Writes of the status are not serialized, because no rule covers it.
func (s *Server) serializeWrites(t target) (done func()) {
	if t.kind.Group != api.ProvisioningGroup || t.kind.Kind != "Repository" || t.subresource != "" {
		return func() {}
	}
	s.rules.Lock()
	return s.rules.Unlock
}

// internal converts any error to a Status.
func internal(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// admitRemoval checks a deletion. Sealed values are forgotten when the object goes,
// and not when it is only marked as being deleted.
func (s *Server) admitRemoval(p *plan) error {
	ctx := context.Background()
	if err := cmp.Or(s.checkEmpty(ctx, p), s.checkUnused(ctx, p)); err != nil {
		return internal(err)
	}
	if !p.remove || !isSecret(p.target.kind) && len(admission.SecureNames(p.old)) == 0 {
		return nil
	}
	return internal(s.forgetOthers(ctx, p, nil))
}

// checkUnused returns an error for the deletion of a Connection that Repositories use: they would
// lose their credentials. Those that are being deleted do not count. A grace period of 0 deletes
// it, as for a folder.
func (s *Server) checkUnused(ctx context.Context, p *plan) error {
	if p.target.kind.Group != api.ProvisioningGroup || p.target.kind.Kind != "Connection" || p.options.force {
		return nil
	}
	all, err := s.repositories(ctx, p.target.namespace)
	if err != nil {
		return err
	}
	var in []string
	for _, repo := range all {
		name, _, _ := unstructured.NestedString(repo.Object, "spec", "connection", "name")
		if name == p.target.name && repo.GetDeletionTimestamp() == nil {
			in = append(in, repo.GetName())
		}
	}
	if len(in) == 0 {
		return nil
	}
	return p.invalid(field.ErrorList{field.Forbidden(field.NewPath("metadata", "name"), // the words of Grafana
		fmt.Sprintf("cannot delete connection: referenced by %d repository(s): %v", len(in), in))})
}

// maxNamed is the number of objects that the error of a folder names.
const maxNamed = 5

// checkEmpty returns an error for the deletion of a folder that is not empty: its content would
// have no parent. Source: Grafana's folder API, which returns this error without the names and
// deletes such a folder for a grace period of 0 (kubectl delete --force).
func (s *Server) checkEmpty(ctx context.Context, p *plan) error {
	if p.target.kind.Group != api.FolderGroup || p.options.force {
		return nil
	}
	var in []string
	for _, k := range api.Kinds {
		if !k.Provisioned() {
			continue
		}
		page, err := s.store.Objects(ctx, state.ObjectQuery{Resource: resourceName(k), Namespace: p.target.namespace})
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if text(item.Data, find(item.Data, "metadata", "annotations", api.AnnoFolder)) == p.target.name {
				in = append(in, strings.ToLower(k.Kind)+"/"+item.Key.Name)
			}
		}
	}
	if len(in) == 0 {
		return nil
	}
	more := ""
	if len(in) > maxNamed {
		in, more = in[:maxNamed], " and others"
	}
	return badRequest("Folder cannot be deleted: folder is not empty: %s%s in it", strings.Join(in, ", "), more)
}
