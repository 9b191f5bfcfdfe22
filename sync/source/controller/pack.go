package controller

import (
	"cmp"
	"context"
	"errors"
	"io"

	"limpet/sync/git"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
)

// pack makes the artifact of the commit in the mirror and stores it.
func (c *Controller) pack(ctx context.Context, a *attempt) (done bool, err error) {
	select {
	case c.packing <- struct{}{}:
		defer func() { <-c.packing }()
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
	commit, err := c.o.Git.Commit(ctx, a.remote, a.ref.Hash)
	if err != nil {
		return true, fetchFailed(err)
	}
	options := archive.Options{Ignore: a.spec.Ignore, Sparse: a.spec.SparseCheckout, Submodules: a.spec.Submodules}
	for i, in := range a.spec.Includes {
		its := a.included[i]
		options.Includes = append(options.Includes, archive.Include{From: in.FromPath, To: cmp.Or(in.ToPath, in.Repository.Name),
			Open: func(ctx context.Context) (io.ReadCloser, error) { return c.o.Artifacts.OpenFile(ctx, its) }})
	}
	made, err := c.o.Artifacts.Put(ctx, artifact.Artifact{Namespace: a.key.Namespace, Name: a.key.Name, UID: string(a.obj.GetUID()),
		Revision: a.revision, Checksum: a.checksum, Subject: commit.Subject},
		func(w io.Writer) (archive.Digests, error) {
			return archive.Write(ctx, w, archive.Tree{Mirrors: c.o.Git, Remote: a.remote, Commit: a.ref.Hash}, options)
		})
	if err != nil {
		if e, ok := errors.AsType[*git.Error](err); ok { // submodules, a directory that is missing, a damaged mirror
			return true, fetchFailed(e)
		}
		f := &failure{condition: condStorage, reason: artifact.ReasonArchive, err: err}
		if e, ok := errors.AsType[*artifact.Error](err); ok {
			f.reason = e.Reason
		}
		return true, f
	}
	a.artifact = made
	c.o.References.Observe(ref(a.key), made.Digest)
	return false, nil
}
