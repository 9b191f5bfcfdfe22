package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
)

// A setback ends an attempt without a result and without fault of the job: the
// next attempt may do better. The job goes back into the queue and rests, longer
// each time; its mark is kept, so that the next attempt goes on where this one
// was. When the attempts are used up the job ends as error, and history calls it
// dead.

// TransientError says that work failed for a reason that is not the job's and
// may be over soon: a host that does not answer or is busy, a connection that
// broke. A worker returns it to have the job tried again.
type TransientError struct {
	Err error
	// After is how long the other side asked to be left alone; 0 = it did not.
	After time.Duration
}

func (e *TransientError) Error() string { return e.Err.Error() }
func (e *TransientError) Unwrap() error { return e.Err }

// Transient says whether err gives the job back for another attempt, if there
// is one left: it is a *TransientError or a *kube.UnavailableError, or the run took
// longer than it may. Workers that tell the state of a job elsewhere ask it.
func Transient(err error) bool {
	return errors.As(err, new(*TransientError)) || errors.As(err, new(*kube.UnavailableError)) || errors.As(err, new(tooLong))
}

// tooLong is the cause of a context whose job has run longer than this.
type tooLong time.Duration

func (d tooLong) Error() string { return "job did not end within " + time.Duration(d).String() }

// Is makes it a deadline for those who do not know it.
func (d tooLong) Is(target error) bool { return target == context.DeadlineExceeded }

type setback struct {
	reason string // attemptTransient or attemptTimeout
	err    error
	after  time.Duration // the least rest
	away   bool          // it may be the API of the jobs itself that is away
}

// setbackOf tells a setback from a failure. err is what the worker returned,
// cause why its context ended, if it did.
func setbackOf(err, cause error) (setback, bool) {
	var passing *TransientError
	var late tooLong
	switch {
	case errors.As(cause, &late):
		return setback{reason: attemptTimeout, err: late}, true
	case errors.As(err, &passing):
		return setback{reason: attemptTransient, err: err, after: passing.After}, true
	case errors.As(err, new(*kube.UnavailableError)):
		after, _ := kube.RetryAfter(err)
		return setback{reason: attemptTransient, err: err, after: after, away: true}, true
	}
	return setback{}, false
}

// postpone puts a job back after a setback. As long as the API of the jobs
// itself does not answer, the claim is kept and taken up again, however long that
// takes. When it does answer, the trouble is elsewhere, and the run counts as an
// attempt: after the last one the job ends as error.
func (c *Controller) postpone(ctx context.Context, h *held, p *Progress, s setback) verdict {
	if h.attempt >= c.o.MaxAttempts {
		if s.away {
			if _, err := c.server.job(h.ctx, h.key); err != nil {
				c.tell(EventWaiting, h.about, s.err.Error())
				return c.later(h)
			}
		}
		return c.finish(ctx, h, p, dead(p.Outcome(s.err), s.reason, h.attempt))
	}
	rest := max(c.host.jitter(attemptDelay(h.attempt+1)), s.after)
	text := fmt.Sprintf("attempt %d of %d: %s; tried again in %s", h.attempt, c.o.MaxAttempts, s.err, rest.Round(time.Second))
	now := c.nowMillis()
	v, given := c.giveBack(h, func(job *unstructured.Unstructured) {
		endAttempt(job, state.Attempt{N: h.attempt, Agent: c.o.Agent, State: s.reason, Message: s.err.Error(),
			Started: api.TimeOfMillis(h.run), Finished: time.UnixMilli(now)})
		api.SetAnnotation(job, api.AnnoNotBefore, strconv.FormatInt(now+rest.Milliseconds(), 10))
		setMessage(job, text)
	})
	if !given {
		return v
	}
	c.rest(context.WithoutCancel(h.ctx), h)
	c.tell(EventPostponed, h.about, text)
	return verdict{bar: rest, again: true, calm: true}
}

// dead is the outcome of a job whose attempts are used up.
func dead(out Outcome, reason string, attempts int) Outcome {
	out.dead = &state.DeadLetter{Reason: reason, Attempts: attempts, LastError: out.Message}
	out.Message = clip(fmt.Sprintf("%s (%s)", out.Message, plural(attempts, "attempt")), maxMessage)
	return out
}
