package localapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// Admission goes defaults, rules of the object, rules between objects, and
// last the sealing of secrets: the rules want to see what was sent, and nothing
// after them may see it.

// admit decides whether a write may be stored, and what else belongs into it:
// defaults and sealed values. The error is an *apierrors.StatusError.
func (s *Server) admit(r *admitRequest) error {
	ctx := context.Background() // a write that was asked for is decided, whoever still waits
	if r.Operation == opDelete {
		if !r.Gone {
			return nil
		}
		return internal(s.forgetAll(ctx, r))
	}
	if r.Subresource != "" {
		return nil
	}
	applyDefaults(r)
	if err := s.check(ctx, r); err != nil {
		return err
	}
	stripLastApplied(r.Object)
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
		if key := changedAuthor(r.Object.GetAnnotations(), r.Old.GetAnnotations()); key != "" {
			return apierrors.NewBadRequest("the annotation " + key + " cannot be changed")
		}
	}
	errs := validateObject(r.Object, r.Old)
	if len(errs) == 0 {
		clash, err := s.otherInstance(ctx, r)
		if err != nil {
			return internal(err)
		}
		if clash != "" {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "sync", "target"),
				fmt.Sprintf("only one repository of a namespace has the target %s, and that is %q", targetInstance, clash)))
		}
	}
	if len(errs) > 0 {
		return invalid(r.Kind, r.Name, errs)
	}
	r.warnUnknownSecure()
	return nil
}

// otherInstance names the repository that already has the target instance, if
// this write wants it.
func (s *Server) otherInstance(ctx context.Context, r *admitRequest) (string, error) {
	if r.Kind.Group != api.ProvisioningGroup || r.Kind.Kind != "Repository" ||
		syncTarget(r.Object) != targetInstance || syncTarget(r.Old) == targetInstance || r.Object.GetDeletionTimestamp() != nil {
		return "", nil
	}
	all, err := s.listObjects(ctx, r.Kind, r.Namespace, labels.Everything())
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if other.GetName() != r.Name && other.GetDeletionTimestamp() == nil && syncTarget(other) == targetInstance {
			return other.GetName(), nil
		}
	}
	return "", nil
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

func syncTarget(obj *unstructured.Unstructured) string {
	if obj == nil {
		return ""
	}
	target, _, _ := unstructured.NestedString(obj.Object, "spec", "sync", "target")
	return target
}

// applyDefaults fills in what Grafana's admission fills in. Finalizers are not
// among it: an object whose finalizers nobody works off cannot be deleted.
func applyDefaults(r *admitRequest) {
	switch {
	case isSecret(r.Kind):
		foldStringData(r.Object.Object)
		if kind, _ := r.Object.Object["type"].(string); kind == "" {
			r.Object.Object["type"] = "Opaque"
		}
	case r.Kind.Group == api.ProvisioningGroup && r.Kind.Kind == "Repository":
		defaultRepository(r.Object)
	}
}

func defaultRepository(obj *unstructured.Unstructured) {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return
	}
	if title, set := spec["title"]; !set || title == "" || title == nil {
		spec["title"] = obj.GetName()
	}
	sync, ok := spec["sync"].(map[string]any)
	if !ok || sync["enabled"] != true {
		return
	}
	var errs field.ErrorList
	seconds := node{data: sync, errs: &errs}.integer("intervalSeconds")
	switch {
	case len(errs) > 0 || seconds < 0: // validation says so
	case seconds == 0:
		sync["intervalSeconds"] = int64(defaultInterval)
	case seconds < minInterval:
		sync["intervalSeconds"] = int64(minInterval)
	}
}

// foldStringData moves the write-only stringData of a Secret into data.
func foldStringData(object map[string]any) {
	given, ok := object["stringData"].(map[string]any)
	if !ok {
		return
	}
	for _, value := range given {
		if _, ok := value.(string); !ok {
			return // validation says so
		}
	}
	data, ok := object["data"].(map[string]any)
	if !ok {
		if object["data"] != nil {
			return
		}
		data = map[string]any{}
	}
	for key, value := range given {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value.(string)))
	}
	object["data"] = data
	delete(object, "stringData")
}

// knownSecure are the secure values of each kind.
var knownSecure = map[string][]string{
	"Repository": {"token", "webhookSecret", "commitSigningKey"},
	"Connection": {"privateKey", "clientSecret", "token"},
}

// warnUnknownSecure tells of secure values that nobody reads. They are sealed
// like the others: a newer server may know them.
func (r *admitRequest) warnUnknownSecure() {
	known, ok := knownSecure[r.Kind.Kind]
	if !ok || r.Kind.Group != api.ProvisioningGroup {
		return
	}
	var errs field.ErrorList
	for _, name := range rootNode(r.Object, &errs).object("secure").names() {
		if !slices.Contains(known, name) {
			r.warn(fmt.Sprintf("secure.%s: unknown; a %s has %v", name, r.Kind.Kind, known))
		}
	}
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
