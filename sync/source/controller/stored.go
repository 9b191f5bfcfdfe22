package controller

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/notify"
	"limpet/sync/source/artifact"
)

// verifyStored looks for the artifact, and whether its bytes are those that were stored.
func (c *Controller) verifyStored(ctx context.Context, a *attempt) (done bool, err error) {
	newest := a.memory.stored
	if newest.Digest == "" {
		newest, err = c.o.Artifacts.Latest(ctx, c.source(a.key))
	}
	if errors.Is(err, artifact.ErrNotFound) || err == nil && newest.UID != string(a.obj.GetUID()) {
		// Another host may have made the one of the status, or the state file is a new one.
		a.lost.Revision, _, _ = unstructured.NestedString(a.obj.Object, "status", "artifact", "revision")
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("read index of artifacts: %w", err)
	}
	bad := c.o.Artifacts.Verify(ctx, newest)
	if bad == nil {
		a.artifact, a.memory.stored = newest, newest
		c.o.References.Observe(c.ref(a.key), newest.Digest)
		return false, nil
	}
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	a.lost = newest
	c.o.Logger.Warn("artifact damaged, building it again", "name", a.key.Name, "namespace", a.key.Namespace, "err", bad)
	c.note(ctx, a, "", notify.Error, "ArtifactVerificationFailed", "artifact "+newest.Path+": "+bad.Error(), newest)
	return false, nil
}

// restore makes the artifact anew when its bytes are lost, without a request to the host, where its
// kind can.
func (c *Controller) restore(ctx context.Context, a *attempt) (done bool, err error) {
	kept, can := a.upstream.(Restorer)
	if a.lost.Revision == "" || !can {
		return false, nil
	}
	if a.found, err = kept.Restore(ctx, a.lost); err == nil {
		_, err = c.pack(ctx, a)
	}
	if err != nil {
		c.o.Logger.Info("cannot build artifact without its host", "name", a.key.Name, "namespace", a.key.Namespace, "err", err)
	}
	return false, ctx.Err()
}
