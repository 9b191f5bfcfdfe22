package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// The end of a job: the record and the phase "completing" in one transaction of
// the state file, then the HistoricJob, then the DELETE, then the claim is
// forgotten. Whatever stops this, the next start goes on at the same place, and
// nothing is written about a job that is not ours any more.

// complete ends a held job. ctx is that of Run: after its end there is still the
// grace period to get things done.
func (c *Controller) complete(ctx context.Context, h *held, out Outcome, status map[string]any, record state.Record) verdict {
	h.seal()
	ctx, cancel := c.graceful(ctx, h.ctx)
	defer cancel()
	if v, ok := c.record(ctx, h, record); !ok {
		return v
	}
	c.step(failpoint.Recorded, h.about)
	h.mu.Lock()
	h.claim.Phase, h.result = state.PhaseCompleting, result{state: record.State, at: record.Finished}
	h.mu.Unlock()
	return c.deliver(ctx, h, status, out)
}

// record keeps the result. A full disk keeps the job until there is room; a
// state file that cannot be written at all gives the job back, because a result
// that nobody remembers does not count.
func (c *Controller) record(ctx context.Context, h *held, r state.Record) (verdict, bool) {
	for try := 1; ; try++ {
		h.mu.Lock()
		k := h.claim
		h.mu.Unlock()
		err := c.keepRecord(ctx, k, r)
		switch {
		case err == nil:
			return verdict{}, true
		case ctx.Err() != nil:
			return c.unkept(h, err), false
		case errors.Is(err, state.ErrReadOnly), errors.Is(err, state.ErrClosed):
			return c.release(h, "the result cannot be kept: "+err.Error()), false
		}
		c.once("record "+h.uid, EventWaiting, h.about, "the result cannot be kept yet: "+err.Error())
		if try <= roomTries && (errors.Is(err, state.ErrFull) || errors.Is(err, syscall.ENOSPC)) {
			c.makeRoom(ctx)
		}
		pause(ctx, retryDelay(try))
	}
}

// unkept leaves a job whose result could not be kept: nobody knows it any more, so
// the job is taken up again.
func (c *Controller) unkept(h *held, err error) verdict {
	if cause, _ := h.lost(); cause != nil {
		return c.forfeited(h)
	}
	c.tell(EventWaiting, h.about, "the result could not be kept, the job is taken up again: "+err.Error())
	return c.later(h)
}

// keepRecord keeps the result of a job and its claim as completing, also where
// the state file was rebuilt under us and has lost the claim.
func (c *Controller) keepRecord(ctx context.Context, k state.Claim, r state.Record) error {
	err := c.store.Complete(ctx, k.UID, r)
	if errors.Is(err, state.ErrNotFound) {
		if err = c.store.PutClaim(ctx, k); err == nil {
			err = c.store.Complete(ctx, k.UID, r)
		}
	}
	return err
}

// roomTries is how often history makes room for one result. When the disk is
// full of other things, more would cost history and gain nothing.
const roomTries = 3

// makeRoom drops a tenth of the local history, oldest first.
func (c *Controller) makeRoom(ctx context.Context) {
	n, err := c.store.HistoryCount(ctx)
	if err != nil || n == 0 {
		return
	}
	removed, err := c.store.TrimHistory(ctx, n*9/10)
	if err == nil && removed > 0 {
		c.o.Meter.Pruned(removed, 0)
		c.tell(EventPruned, about{}, plural(removed, "history record")+" removed to make room in the state file")
	}
}

// deliver takes a recorded job out of the queue of the API.
func (c *Controller) deliver(ctx context.Context, h *held, status map[string]any, out Outcome) verdict {
	historic, lookFirst, refusals := "", h.again, 0
	for try := 1; ; try++ {
		err := func() (err error) {
			if historic == "" {
				historic, err = c.archiveJob(ctx, h, status, lookFirst)
				if err != nil {
					lookFirst = true // it may have arrived
					if answered(err) {
						refusals++
					}
					if refusals < historicTries || ctx.Err() != nil {
						return err
					}
					c.tell(EventNote, h.about, "no HistoricJob could be made: "+err.Error())
					historic = skipped
				}
				c.step(failpoint.Posted, h.about)
			}
			return h.remove(ctx)
		}()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return c.unfinished(ctx, h, historic, err)
		}
		h.refused()
		c.once("deliver "+h.uid, EventWaiting, h.about, "the job is done, but the API does not take the result yet: "+err.Error())
		after := c.asked(err)
		pause(ctx, max(after, retryDelay(try)))
	}
	c.step(failpoint.Deleted, h.about)
	h.quiet()
	c.ending.Go(func() { c.forgetEnded(ctx, h, historic) })
	if out.dead != nil {
		c.tellState(EventDead, h.about, out.dead.Reason, "no attempt is left after "+plural(out.dead.Attempts, "attempt")+"; limpet job retry "+h.uid+" begins anew")
	}
	c.processed(h, out, status)
	c.tellState(EventCompleted, h.about, out.shown(), out.Message)
	return verdict{calm: true}
}

// forgetEnded forgets the claim of a job that is gone. Nobody waits for it but
// the end of Run: a claim that stays tells the next start no more than that the
// job is gone. So this write shares its fsync with the first one of the job that
// the driver takes next.
func (c *Controller) forgetEnded(ctx context.Context, h *held, historic string) {
	if v := c.endClaim(ctx, h, historic); v.retry {
		c.queue.add(h.key, lane{h.Namespace, h.repository}, true)
	}
	c.step(failpoint.Ended, h.about)
}

// endClaim forgets the claim of a completed job. If that fails the job is looked
// at again, found to be gone, and forgotten then.
func (c *Controller) endClaim(ctx context.Context, h *held, historic string) verdict {
	if err := c.store.EndClaim(context.WithoutCancel(ctx), h.uid, historic); err != nil {
		c.once("end "+h.uid, EventNote, h.about, "the claim of a completed job stays in the state file: "+err.Error())
		return c.later(h)
	}
	return verdict{calm: true}
}

// later has the claim looked at again.
func (c *Controller) later(h *held) verdict {
	h.mu.Lock()
	k, r := h.claim, h.result
	h.mu.Unlock()
	c.unsettle(k, r)
	// Nothing works on the job now, so if the process stops before the next look
	// the job is not the reason: the next start, which counts every claim that it
	// finds as an attempt, must not count this one twice.
	k.Attempt--
	if err := c.store.PutClaim(context.WithoutCancel(h.ctx), k); err != nil {
		c.once("rest "+h.uid, EventNote, h.about, "the claim cannot be kept in the state file: "+err.Error())
	}
	return verdict{retry: true, urgent: true}
}

// unfinished leaves a job whose end could not be written. When it is known to be
// in other hands it is dropped, otherwise it is looked at again when the API is
// back, in this process or the next.
func (c *Controller) unfinished(ctx context.Context, h *held, historic string, err error) verdict {
	cause, taken := h.lost()
	if taken {
		if historic == "" {
			historic = skipped
		}
		c.tell(EventLost, h.about, cause.Error()+"; its result is in the local history only")
		return c.endClaim(ctx, h, historic)
	}
	h.refused()
	c.tell(EventWaiting, h.about, "the result is kept and sent when the API is back: "+err.Error())
	return c.later(h)
}

// newRecord makes the history record of a job that ends now.
func (c *Controller) newRecord(h *held, out Outcome, status map[string]any, finished int64, refs account) state.Record {
	data, _ := json.Marshal(status) // plain data
	r := state.Record{UID: h.uid, Namespace: h.Namespace, Name: h.Name, Repository: h.repository, Action: h.action,
		State: out.shown(), Message: out.Message, Agent: c.o.Agent,
		Started: api.TimeOfMillis(h.started), Finished: time.UnixMilli(finished),
		Spec: raw(h.origin, "spec"), Status: data, Labels: h.origin.GetLabels(),
		RefFrom: refs.RefFrom, RefTo: refs.RefTo, Created: api.Time(h.created), Commit: refs.Commit, Steps: stepsTold(refs.Steps, time.Now()),
	}
	delete(r.Labels, api.LabelClaim)
	delete(r.Labels, api.LabelClaimOwner)
	r.Attempts, r.DeadLetter = h.before, out.dead
	began := api.TimeOfMillis(h.run)
	switch {
	case out.dead != nil && out.dead.Reason == attemptCrashed: // nobody has worked in this one
	case out.dead != nil:
		r.Attempts = addAttempt(r.Attempts, state.Attempt{N: h.attempt, Agent: r.Agent, State: out.dead.Reason, Message: out.dead.LastError, Started: began, Finished: r.Finished})
	default:
		r.Attempts = addAttempt(r.Attempts, state.Attempt{N: h.attempt, Agent: r.Agent, State: r.State, Message: r.Message, Started: began, Finished: r.Finished})
	}
	return r
}

// graceful returns a context that ends with the lease, or a grace period after
// Run was told to stop.
func (c *Controller) graceful(run, lease context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(lease)
	done := make(chan struct{})
	stop := context.AfterFunc(run, func() {
		defer close(done)
		pause(ctx, c.o.Grace)
		cancel(ErrShutdown)
	})
	return ctx, func() {
		cancel(context.Canceled)
		if !stop() {
			<-done
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
