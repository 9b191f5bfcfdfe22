package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// finalize adds the finalizer, and removes the artifacts of a source that is deleted.
func (c *Controller) finalize(ctx context.Context, a *attempt) (done bool, err error) {
	names := a.obj.GetFinalizers()
	has := slices.Contains(names, finalizer)
	if a.over = a.obj.GetDeletionTimestamp() != nil; a.over {
		rest, err := c.leaveSink(ctx, a, names)
		if err != nil {
			return true, fmt.Errorf("leave sink directory: %w", err)
		}
		if err := c.o.Artifacts.Remove(ctx, c.source(a.key)); err != nil {
			return true, fmt.Errorf("remove artifacts: %w", err)
		}
		c.o.References.Use(c.ref(a.key))
		c.o.References.Observe(c.ref(a.key), "")
		if rest = slices.DeleteFunc(rest, func(n string) bool { return n == finalizer }); len(rest) < len(names) {
			err = c.setFinalizers(ctx, a, rest)
		}
		return true, err
	}
	if !has {
		err = c.setFinalizers(ctx, a, append(names, finalizer))
	}
	return false, err
}

// leaveStatic ends the reconcile of a source that is ready as it is, and takes away what its spec
// before has left: artifacts, status, finalizer. It touches nothing of a source of others.
func (c *Controller) leaveStatic(ctx context.Context, a *attempt) (done bool, err error) {
	if kind, is := c.o.Kind.(Owner); is && !kind.Owns(a.obj) {
		a.over = true
		return true, nil
	}
	kind, some := c.o.Kind.(Static)
	if !some || a.obj.GetDeletionTimestamp() != nil || !kind.Static(a.obj) {
		return false, nil
	}
	a.over = true
	c.o.References.Use(c.ref(a.key))
	names := a.obj.GetFinalizers()
	if !slices.Contains(names, finalizer) {
		return true, nil
	}
	if err := c.o.Artifacts.Remove(ctx, c.source(a.key)); err != nil {
		return true, fmt.Errorf("remove artifacts: %w", err)
	}
	c.o.References.Observe(c.ref(a.key), "")
	a.obj, err = c.o.Client.Resource(c.kind.Resource()).Namespace(a.key.Namespace).Patch(ctx, a.key.Name, types.MergePatchType,
		[]byte(`{"status":null}`), metav1.PatchOptions{FieldManager: FieldManager}, "status")
	if err != nil {
		return true, fmt.Errorf("remove status: %w", err)
	}
	return true, c.setFinalizers(ctx, a, slices.DeleteFunc(names, func(n string) bool { return n == finalizer }))
}

// setFinalizers replaces the finalizers of the version that was read.
func (c *Controller) setFinalizers(ctx context.Context, a *attempt, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": names, "uid": a.obj.GetUID(),
		"resourceVersion": a.obj.GetResourceVersion()}})
	if err != nil {
		return err
	}
	u, err := c.o.Client.Resource(c.kind.Resource()).Namespace(a.key.Namespace).
		Patch(ctx, a.key.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsNotFound(err):
		a.over = true
		return nil
	case err != nil:
		return fmt.Errorf("write finalizers: %w", err)
	}
	a.obj = u
	return nil
}

// suspend ends the reconcile of a suspended source.
func suspend(_ context.Context, a *attempt) (done bool, err error) {
	a.over, _, _ = unstructured.NestedBool(a.obj.Object, "spec", "suspend")
	return a.over, nil
}
