package source

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// ErrReplaced reports that another object has the name of the source.
var ErrReplaced = errors.New("it is another one by now: the one that was meant is gone")

// Reconcile requests a reconciliation and returns the object with the request. A UID
// guards against another object of the same name. Repeated requests are harmless.
func Reconcile(ctx context.Context, client *kube.Client, kind api.Kind, namespace, name, uid string) (*unstructured.Unstructured, error) {
	return patch(ctx, client, kind, namespace, name, uid, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{AnnoRequested: time.Now().UTC().Format(time.RFC3339Nano)}}})
}

// Suspend suspends or resumes a source. It is written to the spec, so it lasts until it is
// reverted.
func Suspend(
	ctx context.Context, client *kube.Client, kind api.Kind, namespace, name, uid string, on bool,
) (*unstructured.Unstructured, error) {
	value := any(true)
	if !on {
		value = nil // as before the suspension
	}
	return patch(ctx, client, kind, namespace, name, uid, map[string]any{"spec": map[string]any{"suspend": value}})
}

// patch writes without a resource version, so that it never conflicts with the
// controller, which writes to the same object all the time.
func patch(
	ctx context.Context, client *kube.Client, kind api.Kind, namespace, name, uid string, change map[string]any,
) (*unstructured.Unstructured, error) {
	if uid != "" {
		_ = unstructured.SetNestedField(change, uid, "metadata", "uid") // both callers give it objects
	}
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	sources := client.Resource(kind.Resource()).Namespace(namespace)
	u, err := sources.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "limpet"})
	if uid != "" && (apierrors.IsConflict(err) || causedBy(err, "metadata.uid")) {
		return nil, ErrReplaced
	}
	if err != nil {
		return nil, err
	}
	u.SetManagedFields(nil)
	return u, nil
}

// causedBy reports whether an object was refused because of the given field.
func causedBy(err error, member string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == member })
}

// Asked returns the last request for a reconciliation of an object.
func Asked(u *unstructured.Unstructured) string { return api.Annotation(u, AnnoRequested) }

// Handled reports whether the controller has handled the request.
func Handled(u *unstructured.Unstructured, request string) bool {
	return member(object(u.Object, "status"), "lastHandledReconcileAt") == request
}
