package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/jobs/lease"
)

// heldJob is a job under our claim.
type heldJob struct {
	jobRef
	env        *env
	driver     string // that works on it; see HeldBegan
	token      string
	created    time.Time                  // of the Job
	started    int64                      // server milliseconds, status.started
	run        int64                      // the same of the present attempt, which may have begun later
	began      time.Time                  // local time
	ranBefore  bool                       // it was claimed before, so it may be in history
	before     []state.Attempt            // attempts that have ended without a result
	origin     *unstructured.Unstructured // the job as it was claimed; not changed
	afterRenew chan struct{}              // closed by stopRenewing: no renewal any more

	// ctx ends with a cause that is ErrLost when the lease is lost, and is
	// otherwise ended by drop. It is the scope of everything that is written
	// about the job.
	ctx  context.Context
	lose context.CancelCauseFunc
	// work is the context of the worker, a child of ctx.
	work context.Context
	stop context.CancelCauseFunc

	turn chan struct{}              // holds a token during a write of the job
	job  *unstructured.Unstructured // as seen last; read and written with the turn only

	group sync.WaitGroup // goroutines of this job

	mu       sync.Mutex // guards the fields below
	lease    lease.Lease
	watchdog *time.Timer // ends the lease at its deadline
	taken    bool        // known to be gone or claimed by others
	gone     bool        // the object was deleted
	cancel   string      // why it has to stop; "" = it has not
	sealed   bool        // its end has begun: a cancellation comes too late
	result   result      // of the work
	progress *Progress
	claim    state.Claim // as the state file has it
	ended    bool        // afterRenew is closed
}

// hold makes a held job of an object that carries our claim. confirmed is when
// the write that proves it was sent.
func (e *env) hold(ctx context.Context, job *unstructured.Unstructured, claim state.Claim, confirmed lease.Moment) *heldJob {
	h := &heldJob{
		jobRef: refOf(job), env: e, driver: driverOf(ctx), token: claim.Token, created: job.GetCreationTimestamp().Time, began: time.Now(),
		turn: make(chan struct{}, 1), afterRenew: make(chan struct{}), job: job, origin: job, claim: claim,
		lease: lease.New(e.o.terms(), confirmed),
	}
	h.attempt, h.before = claim.Attempt, attemptsEnded(job)
	h.ctx, h.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	h.work, h.stop = context.WithCancelCause(h.ctx)
	h.watchdog = e.clock.host.after(h.lease.Deadline().Sub(e.clock.host.now().Time), h.expire)
	e.claims.addHeld(h)
	e.events.logs.begin(h.uid)
	e.events.measure(HeldBegan{h.uid, h.driver, h.action})
	h.group.Go(h.renewUntilEnd)
	return h
}

// drop ends a held job: no write any more, no goroutine left.
func (h *heldJob) drop() {
	h.stopRenewing()
	h.lose(context.Canceled)
	h.group.Wait()
	h.env.claims.dropHeld(h.uid)
	h.env.events.logs.end(h.uid)
	h.env.events.measure(HeldEnded{h.uid})
}

// stopRenewing ends renewals; writes go on while the lease lasts.
func (h *heldJob) stopRenewing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.ended = true
		close(h.afterRenew)
		h.watchdog.Stop()
	}
}

// expire runs when the deadline has passed without a renewal.
func (h *heldJob) expire() {
	h.lose(fmt.Errorf("%w: no renewal for %s", ErrLost, h.lease.GiveUp()))
}

// loseTo records that the job is claimed by others or gone.
func (h *heldJob) loseTo(why string) error {
	err := fmt.Errorf("%w: %s", ErrLost, why)
	h.mu.Lock()
	h.taken = true
	h.mu.Unlock()
	h.lose(err)
	return err
}

// lost returns why the lease is lost, or nil. taken reports that the job is known
// to be gone or claimed by others; otherwise it may still be ours.
func (h *heldJob) lost() (cause error, taken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil {
		return nil, false
	}
	return context.Cause(h.ctx), h.taken
}

// trust judges the lease now.
func (h *heldJob) trust() lease.Trust {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease.Trust(h.env.clock.host.now())
}

// interrupt has the worker stop on request. It returns false when that is known,
// when the job is at its end already (the deletion of a job that ends is seen too),
// and after the loss of the lease, when the job is not ours any more: a job that is
// gone after the host has slept may have been done by others.
func (h *heldJob) interrupt(reason string, gone bool) bool {
	trusted := h.trust() == lease.Good
	h.mu.Lock()
	if h.sealed || h.ctx.Err() != nil {
		h.mu.Unlock()
		return false
	}
	if gone && !trusted {
		h.mu.Unlock()
		_ = h.loseTo("the job is gone, and the lease had ended before that was seen")
		return false
	}
	first := h.cancel == ""
	if first {
		h.cancel = reason
	}
	h.gone = h.gone || gone
	h.mu.Unlock()
	h.stop(fmt.Errorf("%w: %s", ErrCancelled, reason))
	return first
}

// cancelOnRequest interrupts the worker and reports that.
func (h *heldJob) cancelOnRequest(reason string, gone bool) {
	if h.interrupt(reason, gone) {
		h.env.events.emit(EventCancelled, h.jobRef, reason)
	}
}

// interrupted returns why the job was cancelled and whether it was deleted.
func (h *heldJob) interrupted() (reason string, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cancel, h.gone
}

// seal returns the same, and from now on interrupt has no effect.
func (h *heldJob) seal() (reason string, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sealed = true
	return h.cancel, h.gone
}

// stored returns the claim as the state file has it, and the result of the work.
func (h *heldJob) stored() (state.Claim, result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claim, h.result
}

// change changes fields that h.mu guards.
func (h *heldJob) change(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn()
}
