package controller

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/git"
	"limpet/sync/notify"
	"limpet/sync/source/artifact"
)

// verifyStored looks for the artifact, and whether its bytes are those that were stored.
func (c *Controller) verifyStored(ctx context.Context, a *attempt) (done bool, err error) {
	newest, err := c.o.Artifacts.Latest(ctx, a.key.Namespace, a.key.Name)
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
		a.artifact = newest
		c.o.References.Observe(ref(a.key), newest.Digest)
		return false, nil
	}
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	a.lost = newest
	c.o.Logger.Warn("artifact damaged, building it again", "name", a.key.Name, "namespace", a.key.Namespace, "err", bad)
	return false, c.tell(ctx, a, a.obj, notify.Error, "ArtifactVerificationFailed", "artifact "+newest.Path+": "+bad.Error(), newest)
}

// restore makes the artifact anew from the mirror when its bytes are lost, without a request to the Git host. A
// commit of which only the status tells is verified like a new one.
func (c *Controller) restore(ctx context.Context, a *attempt) (done bool, err error) {
	if a.lost.Revision == "" || a.lost.Digest == "" && a.git.Verify != "" {
		return false, nil
	}
	hash := artifact.Commit(a.lost.Revision)
	a.remote = git.Remote{URL: a.git.URL, AllowInsecure: c.o.AllowInsecure}
	a.ref, a.revision, a.checksum = git.Ref{Name: hash, Hash: hash, Pinned: true}, a.lost.Revision, a.lost.Checksum
	if _, err := c.pack(ctx, a); err != nil {
		c.o.Logger.Info("cannot build artifact from the mirror", "name", a.key.Name, "namespace", a.key.Namespace, "err", err)
	}
	return false, ctx.Err()
}
