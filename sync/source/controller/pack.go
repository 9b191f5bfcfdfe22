package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/ignore"
	"limpet/sync/notify"
	"limpet/sync/reconcile"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
)

// pack makes the artifact of the commit in the mirror and stores it.
func (c *Controller) pack(ctx context.Context, a *attempt) (done bool, err error) {
	what := a.revision + " " + a.checksum
	if a.memory.tooLarge == what {
		return true, a.memory.limit
	}
	leave, most, err := c.enterPack(ctx, a.memory.slow)
	if err != nil {
		return true, err
	}
	defer leave()
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, most, errPackTime)
	defer cancel()
	commit, err := c.o.Git.Commit(ctx, a.remote, a.ref.Hash)
	if err != nil {
		return true, fetchFailed(err)
	}
	options := archive.Options{Ignore: a.spec.Ignore, Sparse: a.spec.SparseCheckout, Submodules: a.spec.Submodules, KeepSymlinks: a.links,
		MaxBytes: c.o.MaxBytes, MaxFiles: c.o.MaxFiles}
	for i, in := range a.spec.Includes {
		its := a.included[i]
		options.Includes = append(options.Includes, archive.Include{From: in.FromPath, To: cmp.Or(in.ToPath, in.Repository.Name),
			Open: func(ctx context.Context) (io.ReadCloser, error) { return c.o.Artifacts.OpenFile(ctx, its) }})
	}
	made, err := c.o.Artifacts.Put(ctx, artifact.Artifact{Namespace: a.key.Namespace, Name: a.key.Name, UID: string(a.obj.GetUID()),
		Revision: a.revision, Checksum: a.checksum, Subject: commit.Subject},
		func(w io.Writer) (archive.Digests, error) {
			return archive.Write(limited, w, archive.Tree{Mirrors: c.o.Git, Remote: a.remote, Commit: a.ref.Hash}, options)
		})
	a.memory.slow = time.Since(began) > c.quickPack
	if err != nil {
		if ctx.Err() == nil && context.Cause(limited) == errPackTime {
			return true, c.packTimeout(a, most)
		}
		if e, ok := errors.AsType[*git.Error](err); ok { // submodules, a directory that is missing, a damaged mirror
			return true, fetchFailed(e)
		}
		if _, ok := errors.AsType[*archive.SparseError](err); ok {
			return true, &failure{condition: condFetch, reason: auth.ReasonOperation, err: err}
		}
		f := &failure{condition: condStorage, reason: artifact.ReasonArchive, err: err}
		if e, ok := errors.AsType[*artifact.Error](err); ok {
			f.reason = e.Reason
		}
		if _, ok := errors.AsType[*archive.IncludeError](err); ok {
			f.condition, f.reason = condInclude, reasonCopy
		}
		if errors.As(err, new(*archive.LimitError)) || errors.As(err, new(*ignore.LimitError)) {
			a.memory.tooLarge, a.memory.limit = what, f
		}
		return true, f
	}
	a.artifact, a.memory.stored, a.memory.packWait = made, made, 0
	c.o.References.Observe(ref(a.key), made.Digest)
	return false, nil
}

// errPackTime ends an archive whose time is over.
var errPackTime = errors.New("it takes too long")

// enterPack waits for a turn to pack and returns how long that may take. For slow ones there is no
// line: a source in it would hold a worker.
func (c *Controller) enterPack(ctx context.Context, slow bool) (leave func(), most time.Duration, err error) {
	if slow {
		select {
		case c.slow <- struct{}{}:
			return func() { <-c.slow }, c.longest, nil
		default:
			return nil, 0, reconcile.ErrBusy
		}
	}
	select {
	case c.quick <- struct{}{}:
		return func() { <-c.quick }, c.quickPack, nil
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
}

// packTimeout is the error of an archive that was not made in time: after the short one it gets a
// longer one. Then it is tried at the next interval, which doubles: another day the host may have
// less to do.
func (c *Controller) packTimeout(a *attempt, most time.Duration) error {
	if most < c.longest {
		return reconcile.ErrBusy
	}
	a.memory.packWait = min(max(2*a.memory.packWait, a.spec.interval), stalledRetry)
	return &failure{condition: condStorage, reason: artifact.ReasonArchive, wait: a.memory.packWait,
		err: fmt.Errorf("the archive takes longer than %s, the limit: leave files out with spec.sparseCheckout or spec.ignore, "+
			"or write fewer and simpler rules", most)}
}

// verifyStored looks for the artifact, and whether its bytes are those that were stored.
func (c *Controller) verifyStored(ctx context.Context, a *attempt) (done bool, err error) {
	newest := a.memory.stored
	if newest.Digest == "" {
		newest, err = c.o.Artifacts.Latest(ctx, a.key.Namespace, a.key.Name)
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
		c.o.References.Observe(ref(a.key), newest.Digest)
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

// restore makes the artifact anew from the mirror when its bytes are lost, without a request to the
// Git host. A commit that is in the status alone is verified like a new one.
func (c *Controller) restore(ctx context.Context, a *attempt) (done bool, err error) {
	if a.lost.Revision == "" {
		return false, nil
	}
	hash := artifact.Commit(a.lost.Revision)
	a.remote = git.Remote{URL: a.git.URL, AllowInsecure: c.o.AllowInsecure, Demands: c.submodules(a)}
	a.ref, a.revision = git.Ref{Name: hash, Hash: hash, Pinned: true}, a.lost.Revision
	if a.checksum = a.checksumOf(a.ref); a.checksum != a.lost.Checksum {
		a.checksum = "" // another configuration: resolve has it made once more
	}
	if a.lost.Digest == "" {
		_, err = c.verify(ctx, a)
	}
	if err == nil {
		_, err = c.pack(ctx, a)
	}
	if err != nil {
		c.o.Logger.Info("cannot build artifact from the mirror", "name", a.key.Name, "namespace", a.key.Namespace, "err", err)
	}
	return false, ctx.Err()
}
