package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// held is a job under our claim.
type held struct {
	about
	driver   string // whose work it is; see Meter
	token    string
	created  time.Time                  // of the Job
	started  int64                      // server milliseconds, status.started
	run      int64                      // the same of the present attempt, which may have begun later
	began    time.Time                  // local time
	again    bool                       // somebody has worked on the job before, so it may be in history
	before   []state.Attempt            // attempts that have ended without a result
	origin   *unstructured.Unstructured // the job as it was claimed; not changed
	server   server                     // for everything but renewals
	renewals server                     // the same server over connections of its own
	host     host
	millis   func() (int64, error)
	onRenew  func(err error, next time.Time)

	// ctx ends with a cause that is ErrLost when the lease is lost, and is
	// otherwise ended by drop. It is the scope of everything that is written
	// about the job.
	ctx  context.Context
	lose context.CancelCauseFunc
	// work is the context of the worker, a child of ctx.
	work context.Context
	stop context.CancelCauseFunc

	turn chan struct{}              // holds a token while somebody writes the job
	job  *unstructured.Unstructured // as seen last; touched only by who has the turn

	group    sync.WaitGroup // goroutines of this job
	finished chan struct{}  // closed by quiet: no renewal any more

	mu       sync.Mutex // guards the fields below
	lease    lease
	watchdog *time.Timer // ends the lease at its deadline
	taken    bool        // known to be gone or in other hands
	gone     bool        // the object was deleted
	cancel   string      // why a person wants it to stop; "" = nobody does
	sealed   bool        // its end has begun: nobody can stop it any more
	result   result      // of the work
	progress *Progress
	claim    state.Claim // as the state file has it
	ended    bool
}

// hold makes a held job of an object that carries our claim. confirmed is when
// the write that proves it was sent.
func (c *Controller) hold(ctx context.Context, job *unstructured.Unstructured, claim state.Claim, confirmed moment) *held {
	h := &held{
		about: aboutOf(job), driver: driverOf(ctx), token: claim.Token, created: job.GetCreationTimestamp().Time, began: time.Now(),
		server: c.server, renewals: c.renewals, host: c.host, millis: c.millis,
		turn: make(chan struct{}, 1), finished: make(chan struct{}), job: job, origin: job, claim: claim,
		lease: newLease(c.terms, confirmed),
	}
	h.attempt, h.before = claim.Attempt, attemptsEnded(job)
	h.onRenew = func(err error, next time.Time) { c.renewed(h, err, next) }
	h.ctx, h.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	h.work, h.stop = context.WithCancelCause(h.ctx)
	h.watchdog = c.host.after(h.lease.deadline().Sub(c.host.now().Time), h.expire)
	c.mu.Lock()
	c.running[h.uid] = h
	delete(c.unsettled, h.uid)
	delete(c.resting, h.uid)
	c.mu.Unlock()
	c.live.begin(h.uid)
	c.o.Meter.Began(h.uid, h.driver, h.action)
	h.group.Go(h.keep)
	return h
}

// holding returns the held jobs but those that their driver is letting go of,
// which are unsettled already. The caller has the lock.
func (c *Controller) holding() []*held {
	out := make([]*held, 0, len(c.running))
	for uid, h := range c.running {
		if _, over := c.unsettled[uid]; !over {
			out = append(out, h)
		}
	}
	return out
}

// drop ends a held job: no write any more, no goroutine left.
func (c *Controller) drop(h *held) {
	h.quiet()
	h.lose(context.Canceled)
	h.group.Wait()
	c.mu.Lock()
	delete(c.running, h.uid)
	c.mu.Unlock()
	c.live.end(h.uid)
	c.o.Meter.Ended(h.uid)
}

// quiet ends renewals; writes go on while the lease lasts.
func (h *held) quiet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.ended = true
		close(h.finished)
		h.watchdog.Stop()
	}
}

// expire runs when the deadline has passed without a renewal.
func (h *held) expire() {
	h.lose(fmt.Errorf("%w: no renewal for %s", ErrLost, h.lease.giveUp()))
}

// lapse ends a lease that has ended for others: the host slept. The claim may
// still be ours, but somebody may work on the repository by now.
func (h *held) lapse() error {
	err := fmt.Errorf("%w: it had ended before it could be renewed", ErrLost)
	h.lose(err)
	return err
}

// forfeit notes that the job is in other hands or gone.
func (h *held) forfeit(why string) error {
	err := fmt.Errorf("%w: %s", ErrLost, why)
	h.mu.Lock()
	h.taken = true
	h.mu.Unlock()
	h.lose(err)
	return err
}

// lost returns why the lease is lost, or nil. taken says that the job is known
// to be gone or in other hands; otherwise it may still be ours.
func (h *held) lost() (cause error, taken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil {
		return nil, false
	}
	return context.Cause(h.ctx), h.taken
}

// guard returns nil when a write may leave now. The caller has the turn.
func (h *held) guard(ctx context.Context) error {
	if err := context.Cause(h.ctx); err != nil {
		return err
	}
	h.mu.Lock()
	verdict := h.lease.trust(h.host.now())
	h.mu.Unlock()
	switch verdict {
	case ceased:
		h.expire()
		return context.Cause(h.ctx)
	case doubt:
		if err := h.renewInTurn(ctx); err != nil {
			return err
		}
		// The host may have slept over the answer.
		return h.guard(ctx)
	}
	return context.Cause(ctx)
}

func (h *held) setProgress(p *Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = p
}

// interrupt tells the worker to stop because a person wants so. It returns
// false when that is known, when the job is at its end already (the deletion of
// a job that ends is seen too), and after the loss of the lease, when what
// happens to the job is the affair of others: a job that is gone after the host
// has slept may have been done by them.
func (h *held) interrupt(reason string, gone bool) bool {
	h.mu.Lock()
	if h.sealed || h.ctx.Err() != nil {
		h.mu.Unlock()
		return false
	}
	if gone && h.lease.trust(h.host.now()) != good {
		h.mu.Unlock()
		_ = h.forfeit("the job is gone, and the lease had ended before that was seen")
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

// interrupted returns what interrupt was told.
func (h *held) interrupted() (reason string, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cancel, h.gone
}

// seal returns the same, and from now on interrupt has no effect.
func (h *held) seal() (reason string, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sealed = true
	return h.cancel, h.gone
}

// cancelReason reads the wish to stop from an object: its annotation or its
// deletion.
func cancelReason(u *unstructured.Unstructured) string {
	if reason := api.Annotation(u, api.AnnoCancel); reason != "" {
		return reason
	}
	if api.Meta(u, "deletionTimestamp") != "" {
		return "the job is being deleted"
	}
	return ""
}
