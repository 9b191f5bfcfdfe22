package jobs

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git/transfer"
	"limpet/sync/jobs/lease"
	"limpet/sync/kube"
)

// heldJob is a job under our claim.
type heldJob struct {
	jobRef
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

	// ctx ends with a cause that is ErrLost when the lease is lost, and is otherwise ended by drop. It is the scope of
	// everything that is written about the job.
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

// hold makes a held job of an object that carries our claim. confirmed is when the write that proves it was sent.
func (e *env) hold(ctx context.Context, job *unstructured.Unstructured, claim state.Claim, confirmed lease.Moment) *heldJob {
	h := &heldJob{
		jobRef: refOf(job), env: e, driver: driverOf(ctx), token: claim.Token, created: job.GetCreationTimestamp().Time, began: time.Now(),
		turn: make(chan struct{}, 1), job: job, origin: job, claim: claim,
		lease: lease.New(e.o.terms(), confirmed),
	}
	h.attempt, h.before = claim.Attempt, attemptsEnded(job)
	h.ctx, h.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	h.work, h.stop = context.WithCancelCause(h.ctx)
	h.renewing, h.endRenewing = context.WithCancel(h.ctx)
	h.watchdog = e.clock.host.after(h.lease.Deadline().Sub(e.clock.host.now().Time), h.expire)
	e.claims.addHeld(h)
	e.events.logs.running(h.uid, true)
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
	h.env.events.logs.running(h.uid, false)
	h.env.events.measure(HeldEnded{h.uid})
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

// lost returns why the lease is lost, or nil. taken reports that the job is known to be gone or claimed by others;
// otherwise it may still be ours.
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

// cancelOnRequest has the worker stop, and reports that once. It does nothing, and returns false, when the job is at its
// end already, and after the loss of the lease: a job that is gone after the host has slept may have been done by others.
func (h *heldJob) cancelOnRequest(reason string, gone bool) (heard bool) {
	trusted := h.trust() == lease.Good
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
			h.env.events.emit(EventCancelled, h.jobRef, reason)
		}
	}
	return !over
}

// seal returns why the job has to stop, "" = it has not, and whether it was deleted. From now on cancelOnRequest has no
// effect.
func (h *heldJob) seal() (reason string, gone bool) {
	h.change(func() { h.sealed, reason, gone = true, h.cancel, h.gone })
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

// Renewals, progress, completion and release take turns to write a held job. Before a write the lease is trusted; after
// a conflict the job is read again and must still carry our UID and our token. Once the lease is lost no write leaves
// any more.

// Tries of one write when others write the same job. Source: Grafana's driver for progress; the end of a job matters
// more.
const (
	progressTries = 3
	endTries      = 8
)

// inTurn does something to the job in turn, when a write may leave now.
func (h *heldJob) inTurn(ctx context.Context, do func() error) error {
	if err := h.takeTurn(ctx); err != nil {
		return err
	}
	defer h.endTurn()
	if err := h.mayWrite(ctx); err != nil {
		return err
	}
	return do()
}

// takeTurn waits for the turn to write; endTurn gives it back.
func (h *heldJob) takeTurn(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *heldJob) endTurn() { <-h.turn }

// mayWrite returns nil when a write may leave now. The caller has the turn.
func (h *heldJob) mayWrite(ctx context.Context) error {
	for {
		if err := context.Cause(h.ctx); err != nil {
			return err
		}
		switch h.trust() {
		case lease.Good:
			return context.Cause(ctx)
		case lease.Ceased:
			h.expire()
			return context.Cause(h.ctx)
		}
		// The host may sleep over the answer, so the lease is judged again.
		if err := h.renewInTurn(ctx); err != nil {
			return err
		}
	}
}

// read reads the job again. gone, when not empty, is how it has ended.
func (h *heldJob) read(ctx context.Context, s server) (job *unstructured.Unstructured, gone string, err error) {
	job, err = s.get(ctx, api.Jobs, h.Namespace, h.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "the job is gone", nil
	case err == nil && string(job.GetUID()) != h.uid:
		return nil, "the job was deleted and its name is used by another one", nil
	}
	return job, "", err
}

// reread reads the job again. The lease is lost when the job or its claim is not ours.
func (h *heldJob) reread(ctx context.Context, s server) error {
	job, gone, err := h.read(ctx, s)
	switch {
	case err != nil:
		return err
	case gone == "" && !owned(job, h.uid, h.token):
		gone = "the claim is in other hands"
	}
	if gone != "" {
		return h.loseTo(gone)
	}
	h.job = job
	return nil
}

// stale reports that the object has changed or gone since it was read.
func stale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// write makes a write in turn, and repeats it on the newest object after a conflict.
func (h *heldJob) write(ctx context.Context, tries int, do func() error) error {
	return h.inTurn(ctx, func() error {
		for try := 1; ; try++ {
			if err := do(); err == nil || !stale(err) || try == tries {
				return err
			}
			if err := h.reread(ctx, h.env.server); err != nil {
				return err
			}
			if err := h.mayWrite(ctx); err != nil {
				return err
			}
		}
	})
}

// put writes the job as edit leaves it.
func (h *heldJob) put(ctx context.Context, tries int, edit func(job *unstructured.Unstructured)) error {
	return h.write(ctx, tries, func() error {
		next := h.job.DeepCopy()
		edit(next)
		out, err := h.env.server.putJob(ctx, next)
		if err == nil {
			h.job = out
		}
		return err
	})
}

// remove deletes the job under UID and resourceVersion. A job that is already gone is nil, its name in use again or
// not: it was ours when it was last read.
func (h *heldJob) remove(ctx context.Context) error {
	return h.write(ctx, endTries, func() error {
		err := h.env.server.delete(ctx, api.Jobs, h.job)
		if apierrors.IsConflict(err) {
			if _, gone, readErr := h.read(ctx, h.env.server); readErr == nil && gone != "" {
				return nil
			}
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// last returns the job as seen last, or as it was claimed when the lease is lost.
func (h *heldJob) last() *unstructured.Unstructured {
	if h.takeTurn(h.ctx) != nil {
		return h.origin.DeepCopy()
	}
	defer h.endTurn()
	return h.job.DeepCopy()
}

// reportProgress writes progress as often as the throttle allows until ctx ends, which does not interrupt a write that
// is under way: of an interrupted one it would not be known whether it was done.
func (h *heldJob) reportProgress(ctx context.Context, p *Progress) {
	for ctx.Err() == nil {
		at, some := p.due()
		if !some || time.Now().Before(at) {
			wait(ctx, p.changed, at, some)
			continue
		}
		// A write that does not arrive is repeated with the next change or after the longer interval, whichever is
		// first.
		status := p.begin(time.Now())
		status.Started = h.started
		if err := h.put(h.ctx, progressTries, func(job *unstructured.Unstructured) { setStatus(job, status) }); err != nil {
			p.set(func() { p.record = true })
		}
	}
}

// reportTransfer emits an event each second in which a transfer has moved, until ctx ends. Without one it sleeps.
func (h *heldJob) reportTransfer(ctx context.Context, m *transfer.Meter) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.Began():
		}
		m.Tick(time.Now())
		for going := true; going; {
			pause(ctx, transferInterval)
			if ctx.Err() != nil {
				return
			}
			now, moved := m.Tick(time.Now())
			if going = now.Phase != ""; going && moved {
				h.env.events.emit(EventTransfer, h.jobRef, now.Text(time.Now()))
			}
		}
	}
}

// transferInterval is how often a transfer is measured.
const transferInterval = time.Second

// renewTries is how often one renewal is tried when others write the same job.
const renewTries = 10

// renewUntilEnd renews the lease until the job is done or lost. It is the only goroutine that renews, over connections
// of its own, so that a renewal never waits behind other traffic.
func (h *heldJob) renewUntilEnd() {
	for {
		var next time.Time
		h.change(func() { next = h.lease.Next() })
		pause(h.renewing, next.Sub(h.env.clock.host.now().Time))
		if h.renewing.Err() != nil {
			return
		}
		h.renew()
	}
}

// renew renews once and records the result.
func (h *heldJob) renew() {
	err := h.takeTurn(h.ctx)
	if err == nil {
		if h.renewing.Err() == nil {
			err = h.renewInTurn(h.ctx)
		}
		h.endTurn()
	}
	var next time.Duration
	h.change(func() {
		now := h.env.clock.host.now().Time
		if err != nil {
			after, _ := kube.RetryAfter(err)
			h.lease.Failed(now, after)
		}
		next = h.lease.Next().Sub(now).Round(100 * time.Millisecond)
	})
	switch {
	case h.renewing.Err() != nil:
	case err != nil:
		h.env.events.emit(EventRenewal, h.jobRef, fmt.Sprintf("lease not renewed, next try in %s: %s", next, err))
	default:
		h.env.events.emit(EventRenewed, h.jobRef, "lease renewed")
	}
}

// renewInTurn reads the job, checks that it is ours and writes the new claim time. A conflicting write of others is
// tried again at once. The caller has the turn.
func (h *heldJob) renewInTurn(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := context.Cause(h.ctx); err != nil {
			return err
		}
		if err := h.reread(ctx, h.env.renewals); err != nil {
			return err
		}
		millis, err := h.env.clock.millis()
		if err != nil {
			return err
		}
		if h.lease.Lapsed(claimTime(h.job), millis) {
			// The host slept. The claim may still be ours, but others may work on the repository by now.
			err := fmt.Errorf("%w: it had ended before it could be renewed", ErrLost)
			h.lose(err)
			return err
		}
		next := h.job.DeepCopy()
		setClaim(next, millis, h.token)
		sent := h.env.clock.host.now()
		out, err := h.env.renewals.putJob(ctx, next)
		switch {
		case err == nil:
			h.job = out
			h.renewed(sent)
			return nil
		case apierrors.IsNotFound(err):
			return h.loseTo("the job is gone")
		case !apierrors.IsConflict(err) || try == renewTries:
			return err
		}
	}
}

// renewed records a renewal that was sent at the given time.
func (h *heldJob) renewed(sent lease.Moment) {
	h.change(func() {
		h.lease.Renewed(sent)
		if h.renewing.Err() == nil {
			h.watchdog.Stop()
			h.watchdog = h.env.clock.host.after(h.lease.Deadline().Sub(h.env.clock.host.now().Time), h.expire)
		}
	})
}
