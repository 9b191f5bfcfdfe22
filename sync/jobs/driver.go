package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/failpoint"
	"limpet/sync/kube"
)

// youth is how long a job waits for a repository that does not exist yet: both
// may have been applied together, in any order.
const youth = 2 * time.Second

// readyTime bounds Worker.Ready.
const readyTime = 5 * time.Second

// drive takes names from the queue until ctx ends. While the API is away it asks
// only as often as all others together may: a backlog would be asked about name
// by name.
func (c *Controller) drive(ctx context.Context) {
	for {
		if c.await(ctx) != nil {
			return
		}
		k, l, ok := c.queue.take(ctx)
		if !ok {
			return
		}
		v := c.process(ctx, k, l)
		c.queue.done(k, v)
		if v.rest > 0 && !v.hesitate && c.occupied(l) == 0 {
			c.queue.free(l) // the neighbour's end was shown before the lane began to rest
		}
		if v.bar > 0 {
			c.crew.leave(l)
		}
		c.driedUp()
	}
}

// process looks at one name and does what there is to do.
func (c *Controller) process(ctx context.Context, k key, l lane) verdict {
	own := c.unsettledOf(k)
	if len(own) == 0 {
		if c.knownAsOthers(k) {
			return verdict{}
		}
		if rest := c.occupied(l); rest > 0 && !c.unwanted(k) {
			return verdict{again: true, rest: rest, calm: true}
		}
		if rest := c.crew.hesitation(l, time.Now(), c.rivalry.head()); rest > 0 {
			return verdict{again: true, rest: rest, hesitate: true, calm: true}
		}
	}
	job, err := c.server.job(ctx, k)
	if err != nil && !apierrors.IsNotFound(err) {
		return c.retryAfter(err)
	}
	gone := err != nil
	for _, u := range own {
		why := "the job is gone"
		switch {
		case gone:
		case owned(job, u.claim.UID, u.claim.Token):
			if back, v := c.comesBack(ctx, job); back {
				return v
			}
			return c.resume(ctx, job, u)
		case string(job.GetUID()) == u.claim.UID && u.claim.Phase == state.PhaseIntent && !claimed(job):
			continue // its request may still arrive; claim uses the same token
		case string(job.GetUID()) == u.claim.UID:
			why = "the claim is in other hands or was removed"
		}
		if err := c.forget(ctx, u, why); err != nil {
			return verdict{retry: true}
		}
	}
	if gone || claimed(job) {
		return verdict{calm: true}
	}
	if to := laneOf(job); to != l {
		return verdict{again: true, calm: true, move: &to}
	}
	if back, v := c.comesBack(ctx, job); back {
		return v
	}
	return c.take(ctx, job)
}

// knownAsOthers says, without asking the API, that a job needs no look: the last
// thing seen of it is that somebody has it, that this agent cannot run it, or
// that it is gone. Names without a claim of ours come from the watch, so one that
// it does not show has been deleted, or comes again with its event.
func (c *Controller) knownAsOthers(k key) bool {
	seen, ok := c.jobs.Get(k.Namespace, k.Name)
	if !ok {
		return true
	}
	if claimed(seen) {
		return true
	}
	if j := c.route(seen); j != nil {
		c.left(seen, *j)
		return true
	}
	repo, ok := c.repos.Get(k.Namespace, laneOf(seen).Repository)
	if !ok {
		// With a selector the server shows only what it picks. A Repository that
		// comes later has its jobs looked at again (repoHandler).
		return !c.o.Selector.Empty()
	}
	return !c.selected(repo)
}

// unwanted says that a job which nobody holds is only to be ended, because a
// person has cancelled it: then there is no work to exclude.
func (c *Controller) unwanted(k key) bool {
	seen, ok := c.jobs.Get(k.Namespace, k.Name)
	return ok && cancelReason(seen) != ""
}

// asked is how long the server wants to be left alone, and up to a tenth more:
// agents that were told the same must not come back together.
func (c *Controller) asked(err error) time.Duration {
	after, ok := kube.RetryAfter(err)
	if !ok || after == 0 {
		return 0
	}
	return after + (c.host.jitter(after)-after*9/10)/2
}

// retryAfter asks for another look, not before the server wants it.
func (c *Controller) retryAfter(err error) verdict {
	after := c.asked(err)
	return verdict{retry: true, bar: after}
}

// take claims a job that nobody holds, if this agent is to run it, and runs it.
func (c *Controller) take(ctx context.Context, job *unstructured.Unstructured) verdict {
	a := aboutOf(job)
	now, err := c.millis()
	if err != nil {
		c.once("clock", EventNote, about{}, "no job is claimed: "+err.Error())
		return verdict{retry: true}
	}
	if rest := notBefore(job) - now; rest > 0 && cancelReason(job) == "" {
		return verdict{again: true, bar: min(time.Duration(rest)*time.Millisecond, attemptDelay(99))}
	}
	repo, err := c.repositoryOf(ctx, job)
	if err != nil {
		return c.retryAfter(err)
	}
	if repo == nil && a.repository != "" && now-job.GetCreationTimestamp().UnixMilli() < youth.Milliseconds() {
		return verdict{again: true, bar: youth}
	}
	j := c.judge(job, repo)
	if j.worker != nil {
		if err := c.ready(ctx, j); err != nil {
			if ctx.Err() != nil {
				return verdict{}
			}
			j = leave("not ready to run it: %s", err)
		}
	}
	// A request of ours that may still arrive is settled even where the job is to
	// be left: it is claimed with the same token and given back. Otherwise the
	// intent would stay open as long as nobody runs the job.
	_, open := c.openIntent(a.uid)
	if j.leave != "" && !open {
		c.left(job, j)
		return verdict{}
	}
	c.step(failpoint.Seen, a)
	if c.draining() && !open {
		return verdict{again: true, calm: len(c.unsettledOf(a.key)) == 0}
	}
	// A claim that is under way when the agent is told to stop is brought to its
	// end and given back: an open one would be left behind.
	h, err := c.claim(context.WithoutCancel(ctx), job, false, func(again *unstructured.Unstructured) bool {
		return !claimed(again) && sameTerms(job, again)
	})
	switch {
	case errors.Is(err, errTaken):
		return verdict{}
	case errors.Is(err, errOccupied): // it may be free again by now
		return verdict{again: true, rest: c.occupied(laneOf(job)), calm: true}
	case errors.Is(err, errArrived):
		return verdict{again: true, urgent: true}
	case errors.Is(err, errBusy):
		return verdict{retry: true}
	case errors.Is(err, errReleased) && len(c.unsettledOf(a.key)) == 0:
		return verdict{again: true, bar: c.o.Interval}
	case err != nil:
		c.once("claim "+a.uid, EventNote, a, "the job could not be claimed: "+err.Error())
		v := c.retryAfter(err)
		v.urgent = len(c.unsettledOf(a.key)) > 0
		return v
	}
	defer c.drop(h)
	c.tell(EventClaimed, h.about, "job claimed")
	switch {
	case ctx.Err() != nil:
		return c.release(h, "the agent stops")
	case j.leave != "":
		return c.release(h, j.leave)
	case open && c.draining(): // now the earlier request cannot come to pass any more
		return c.release(h, "the agent drains")
	}
	if j.end != nil {
		return c.finish(ctx, h, newProgress(time.Now()), *j.end)
	}
	first, err := c.firstHere(h)
	switch {
	case err != nil:
		return c.forfeited(h)
	case first != nil:
		return c.yield(h, first)
	}
	return c.run(ctx, h, j)
}

// sameTerms says whether what was judged of a job holds for it as it is now:
// somebody may have run it and given it back in the meantime, or cancelled it.
func sameTerms(judged, now *unstructured.Unstructured) bool {
	return laneOf(judged) == laneOf(now) && attemptsOf(judged) == attemptsOf(now) &&
		notBefore(judged) == notBefore(now) && cancelReason(judged) == cancelReason(now)
}

// ready asks the worker. A panic is an answer: this agent cannot run the job.
func (c *Controller) ready(ctx context.Context, j judgement) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("worker panicked: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	return j.worker.Ready(ctx, j.task)
}

func (c *Controller) left(job *unstructured.Unstructured, j judgement) {
	if a := aboutOf(job); !j.quiet {
		c.once("left "+a.uid+j.leave, EventLeft, a, "left alone: "+j.leave)
	}
}

// repositoryOf returns the repository of a job, nil when the API says that it
// does not exist. The watch may be behind, so absence is asked for.
func (c *Controller) repositoryOf(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	l := laneOf(job)
	if l.Repository == "" {
		return nil, nil
	}
	if repo, ok := c.repos.Get(l.Namespace, l.Repository); ok {
		return repo, nil
	}
	repo, err := c.server.repository(ctx, l.Namespace, l.Repository)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return repo, err
}
