package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// clientSideApplier is the manager whose objects may carry the annotation of
// client-side apply; for it alone server-side apply reads and renews that.
const clientSideApplier = "kubectl"

// typedOf checks an object against the types of its kind.
func (m *merger) typedOf(obj *unstructured.Unstructured) (*typed.TypedValue, error) {
	v, err := m.types.FromUnstructured(obj.Object, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("read fields: %w", err)
	}
	return v, nil
}

// apply merges the applied configuration into the live object (an empty one of
// the same apiVersion and kind when there is none) and answers the result, which
// shares nothing with either. Fields that another manager owns with another
// value are a 409 status error, unless force takes them over.
func (m *merger) apply(live, config *unstructured.Unstructured, manager, subresource string, force bool) (*unstructured.Unstructured, error) {
	if config.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	own, err := decodeOwnership(live.GetManagedFields())
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read managed fields: %w", err))
	}
	merged, own, err := m.applyOnce(live, config, own, manager, subresource, force)
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) {
		if manager == clientSideApplier {
			merged, own, err = m.applyOver(conflicts, live, config, manager, subresource)
		}
		if errors.As(err, &conflicts) {
			return nil, conflictError(conflicts)
		}
	}
	if err != nil {
		return nil, err
	}
	if manager == clientSideApplier {
		renewLastApplied(merged, config)
	}
	return merged, own.store(merged)
}

// applyOnce is one attempt. It does not change live and config.
func (m *merger) applyOnce(live, config *unstructured.Unstructured, own ownership, manager, subresource string, force bool) (*unstructured.Unstructured, ownership, error) {
	apiVersion := live.GetAPIVersion()
	id, err := managerID(metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: subresource})
	if err != nil {
		return nil, own, err
	}
	live = live.DeepCopy()
	live.SetManagedFields(nil)
	if len(own.sets) == 0 {
		empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": live.GetKind()}}
		if own, err = m.update(empty, live, own, beforeApply, apiVersion, subresource); err != nil {
			return nil, own, err
		}
	}
	liveTyped, err := m.typedOf(live)
	if err != nil {
		return nil, own, apierrors.NewInternalError(err)
	}
	configTyped, err := m.types.FromUnstructured(config.Object) // no duplicates here
	if err != nil {
		// The real server answers a configuration of wrong types with 500.
		return nil, own, statusError(http.StatusInternalServerError, "", fmt.Sprintf("failed to create typed patch object (%s/%s; %s): %s",
			config.GetNamespace(), config.GetName(), config.GroupVersionKind(), err))
	}
	result, sets, err := m.updater.Apply(liveTyped, configTyped, fieldpath.APIVersion(apiVersion), own.sets, id, force)
	if err != nil {
		return nil, own, err
	}
	own.sets = sets
	own.strip(id)
	if result == nil {
		return live, own, nil
	}
	object, ok := result.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, own, apierrors.NewInternalError(fmt.Errorf("merge gave %T", result.AsValue().Unstructured()))
	}
	own.times[id] = &metav1.Time{Time: time.Now().UTC()}
	merged := &unstructured.Unstructured{Object: object}
	return merged.DeepCopy(), own, nil
}

// applyOver takes over fields that client-side apply set before: those that
// still have the value of the annotation. Other conflicts stay.
func (m *merger) applyOver(conflicts merge.Conflicts, live, config *unstructured.Unstructured, manager, subresource string) (*unstructured.Unstructured, ownership, error) {
	own, err := decodeOwnership(live.GetManagedFields())
	if err != nil {
		return nil, own, err
	}
	allowed, ok := m.lastAppliedFields(live)
	if !ok {
		return nil, own, conflicts
	}
	rest := slices.DeleteFunc(slices.Clone(conflicts), func(c merge.Conflict) bool { return allowed.Has(c.Path) })
	if len(rest) > 0 {
		return nil, own, merge.Conflicts(rest)
	}
	return m.applyOnce(live, config, own, manager, subresource, true)
}

// lastAppliedFields are the fields of the annotation whose values are live.
func (m *merger) lastAppliedFields(live *unstructured.Unstructured) (*fieldpath.Set, bool) {
	applied := &unstructured.Unstructured{}
	if json.Unmarshal([]byte(live.GetAnnotations()[lastApplied]), &applied.Object) != nil || applied.GetAPIVersion() != live.GetAPIVersion() {
		return nil, false
	}
	appliedTyped, err := m.typedOf(applied)
	if err != nil {
		return nil, false
	}
	liveTyped, err := m.typedOf(live)
	if err != nil {
		return nil, false
	}
	fields, err := appliedTyped.ToFieldSet()
	if err != nil {
		return nil, false
	}
	c, err := appliedTyped.Compare(liveTyped)
	if err != nil {
		return nil, false
	}
	return fields.Difference(c.Modified).Difference(c.Added).Difference(c.Removed), true
}

// renewLastApplied keeps the annotation of client-side apply true, where there
// is one.
func renewLastApplied(obj, config *unstructured.Unstructured) {
	annotations := obj.GetAnnotations()
	if annotations[lastApplied] == "" {
		return
	}
	applied := config.DeepCopy()
	unstructured.RemoveNestedField(applied.Object, "metadata", "annotations", lastApplied)
	text, err := json.Marshal(applied.Object)
	if err != nil {
		return
	}
	annotations[lastApplied] = string(text) + "\n"
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		delete(annotations, lastApplied)
	}
	obj.SetAnnotations(annotations)
}

// conflictError names each field and its owner.
func conflictError(conflicts merge.Conflicts) error {
	sort.Slice(conflicts, func(i, j int) bool {
		a, b := conflicts[i], conflicts[j]
		return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Path.String(), b.Path.String())) < 0
	})
	causes := make([]metav1.StatusCause, len(conflicts))
	for i, c := range conflicts {
		causes[i] = metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + managerText(c.Manager), Field: c.Path.String()}
	}
	if len(conflicts) == 1 {
		return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with 1 conflict: conflict with %s: %s", managerText(conflicts[0].Manager), conflicts[0].Path))
	}
	var lines []string
	for i, c := range conflicts {
		if i == 0 || c.Manager != conflicts[i-1].Manager {
			lines = append(lines, fmt.Sprintf("conflicts with %s:", managerText(c.Manager)))
		}
		lines = append(lines, "- "+c.Path.String())
	}
	return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n")))
}

// managerText is a manager as people read it.
func managerText(id string) string {
	var e metav1.ManagedFieldsEntry
	if json.Unmarshal([]byte(id), &e) != nil {
		return fmt.Sprintf("%q", id)
	}
	text := fmt.Sprintf("%q", e.Manager)
	if e.Subresource != "" {
		text += fmt.Sprintf(" with subresource %q", e.Subresource)
	}
	if e.Operation == metav1.ManagedFieldsOperationUpdate {
		text += " using " + e.APIVersion
	}
	return text
}
