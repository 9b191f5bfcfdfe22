package jobs

import (
	"cmp"
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
	ref       jobRef
	env       *env
	driver    string // that works on it; see HeldBegan
	token     string
	created   time.Time                  // of the Job
	started   int64                      // server milliseconds, status.started
	run       int64                      // the same of the present attempt, which may have begun later
	began     time.Time                  // local time
	ranBefore bool                       // it was claimed before, so it may be in history
	before    []state.Attempt            // attempts that have ended without a result
	origin    *unstructured.Unstructured // the job as it was claimed; not changed

	// ctx ends with a cause that is ErrLost when the lease is lost, and is otherwise ended by drop. It
	// is the scope of everything that is written about the job.
	ctx  context.Context
	lose context.CancelCauseFunc
	// work is the context of the worker, a child of ctx.
	work context.Context
	stop context.CancelCauseFunc
	// renewing, a child of ctx too, ends with the renewals; writes go on while the lease lasts.
	renewing    context.Context
	endRenewing context.CancelFunc

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
}

// hold makes a held job of an object that carries our claim. confirmed is when the write that
// proves it was sent.
func (e *env) hold(ctx context.Context, job *unstructured.Unstructured, claim state.Claim, confirmed lease.Reading) *heldJob {
	h := &heldJob{
		ref: refOf(job), env: e, driver: driverOf(ctx), token: claim.Token, created: job.GetCreationTimestamp().Time, began: time.Now(),
		turn: make(chan struct{}, 1), job: job, origin: job, claim: claim,
		lease: lease.New(e.o.terms(), confirmed),
	}
	h.ref.attempt, h.before = claim.Attempt, attemptsEnded(job)
	h.ctx, h.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	h.work, h.stop = context.WithCancelCause(h.ctx)
	h.renewing, h.endRenewing = context.WithCancel(h.ctx)
	h.watchdog = e.clock.host.after(h.lease.Deadline().Sub(e.clock.host.now().Time), h.expire)
	e.claims.addHeld(h)
	e.events.logs.Begin(h.ref.uid)
	e.events.measure(HeldBegan{h.ref.uid, h.driver, h.ref.action})
	h.group.Go(h.renewUntilEnd)
	return h
}

// drop ends a held job: no write any more, no goroutine left.
func (h *heldJob) drop() {
	h.stopRenewing()
	h.lose(context.Canceled)
	h.group.Wait()
	h.env.claims.dropHeld(h.ref.uid)
	h.env.events.logs.End(h.ref.uid)
	h.env.events.measure(HeldEnded{h.ref.uid})
}

func (h *heldJob) stopRenewing() {
	h.endRenewing()
	h.change(func() { h.watchdog.Stop() })
}

// expire runs when the deadline has passed without a renewal.
func (h *heldJob) expire() {
	h.lose(fmt.Errorf("%w: no renewal for %s", ErrLost, h.lease.GiveUp()))
}

// loseTo records that the job is claimed by others or gone.
func (h *heldJob) loseTo(why string) error {
	err := fmt.Errorf("%w: %s", ErrLost, why)
	h.change(func() { h.taken = true })
	h.lose(err)
	return err
}

// lost returns why the lease is lost, or nil. taken reports that the job is known to be gone or
// claimed by others; otherwise it may still be ours.
func (h *heldJob) lost() (cause error, taken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cause = context.Cause(h.ctx)
	return cause, h.taken && cause != nil
}

// trust judges the lease now.
func (h *heldJob) trust() (t lease.Trust) {
	h.change(func() { t = h.lease.Trust(h.env.clock.host.now()) })
	return t
}

// cancelOnRequest has the worker stop, and reports that once. It does nothing, and returns false,
// when the job is at its end already, and after the loss of the lease: a job that is gone after the
// host has slept may have been done by others.
func (h *heldJob) cancelOnRequest(reason string, gone bool) (heard bool) {
	trusted := h.trust() == lease.Valid
	h.mu.Lock()
	over, first := h.sealed || h.ctx.Err() != nil, h.cancel == ""
	if !over && (trusted || !gone) {
		h.cancel, h.gone = cmp.Or(h.cancel, reason), h.gone || gone
	}
	h.mu.Unlock()
	switch {
	case over:
	case gone && !trusted:
		_ = h.loseTo("the job is gone, and the lease had ended before that was seen")
	default:
		h.stop(fmt.Errorf("%w: %s", ErrCancelled, reason))
		if first {
			h.env.events.emit(EventCancelled, h.ref, reason)
		}
	}
	return !over
}

// seal returns why the job has to stop, "" = it has not, and whether it was deleted. From now on
// cancelOnRequest has no effect.
func (h *heldJob) seal() (reason string, gone bool) {
	h.change(func() {
		h.sealed = true
		reason = h.cancel
		gone = h.gone
	})
	return reason, gone
}

// stored returns the claim as the state file has it, and the result of the work.
func (h *heldJob) stored() (k state.Claim, r result) {
	h.change(func() { k, r = h.claim, h.result })
	return k, r
}

// change reads or changes fields that h.mu guards.
func (h *heldJob) change(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn()
}
