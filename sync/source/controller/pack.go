package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"limpet/sync/git/ignore"
	"limpet/sync/reconcile"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
)

// pack makes the artifact of the revision that is on this host and stores it.
func (c *Controller) pack(ctx context.Context, a *attempt) (done bool, err error) {
	what := a.found.Revision + " " + a.found.Checksum
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
	content, err := a.upstream.Pack(limited)
	if err != nil {
		return true, err
	}
	of := artifact.Artifact{Kind: c.kind.Singular, Namespace: a.key.Namespace, Name: a.key.Name,
		UID: string(a.obj.GetUID()), Revision: a.found.Revision, Checksum: a.found.Checksum, Subject: content.Subject,
		Path: content.Path, Metadata: content.Metadata}
	var made artifact.Artifact
	if content.File != "" {
		made, err = c.o.Artifacts.PutFile(ctx, of, content.File, content.Digests)
	} else {
		made, err = c.o.Artifacts.Put(ctx, of, content.Write)
	}
	a.memory.slow = time.Since(began) > c.quickPack
	if err != nil {
		if ctx.Err() == nil && context.Cause(limited) == errPackTime {
			return true, c.packTimeout(a, most)
		}
		f, is := errors.AsType[*Failure](err)
		if !is {
			f = &Failure{Condition: StorageFailed, Reason: artifact.ReasonArchive, Err: err}
			if e, ok := errors.AsType[*artifact.Error](err); ok {
				f.Reason = e.Reason
			}
		}
		if errors.As(err, new(*archive.LimitError)) || errors.As(err, new(*ignore.LimitError)) {
			a.memory.tooLarge, a.memory.limit = what, f
		}
		return true, f
	}
	if content.Spent != "" {
		if err := os.RemoveAll(content.Spent); err != nil {
			c.o.Logger.Warn("remove what an artifact was made of", "name", a.key.Name, "namespace", a.key.Namespace, "err", err)
		}
	}
	a.artifact, a.memory.stored, a.memory.packWait = made, made, 0
	c.o.References.Observe(c.ref(a.key), made.Digest)
	return false, nil
}

// errPackTime ends an archive whose time is over.
var errPackTime = errors.New("it takes too long")

// enterPack waits for a turn to pack and returns how long that may take. For slow ones there is no
// line: a source in it would hold a worker.
func (c *Controller) enterPack(ctx context.Context, slow bool) (leave func(), most time.Duration, err error) {
	if slow {
		select {
		case c.o.Turns.slow <- struct{}{}:
			return func() { <-c.o.Turns.slow }, c.longest, nil
		default:
			return nil, 0, reconcile.ErrBusy
		}
	}
	select {
	case c.o.Turns.quick <- struct{}{}:
		return func() { <-c.o.Turns.quick }, c.quickPack, nil
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
	a.memory.packWait = min(max(2*a.memory.packWait, a.common.interval), stalledRetry)
	return &Failure{Condition: StorageFailed, Reason: artifact.ReasonArchive, Wait: a.memory.packWait,
		Err: fmt.Errorf("the archive takes longer than %s, the limit: leave files out with spec.sparseCheckout or spec.ignore, "+
			"or write fewer and simpler rules", most)}
}
