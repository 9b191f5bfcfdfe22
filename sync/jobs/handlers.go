package jobs

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Handlers of the watch do nothing but put names into the queue and pass on the
// wish to stop. Whatever they miss the periodic list brings.

func (c *Controller) handler() kube.Handler {
	return kube.Handler{
		Add:     func(job kube.Object) { c.added(job.Unstructured()) },
		Update:  func(old, job kube.Object) { c.updated(old.Unstructured(), job.Unstructured()) },
		Delete:  func(job kube.Object) { c.deleted(job.Unstructured()) },
		Listing: c.listing,
	}
}

func (c *Controller) added(job *unstructured.Unstructured) {
	c.seen(job.GetCreationTimestamp().Time)
	c.watch(job)
	c.meet(nil, job)
	if !claimed(job) {
		c.queue.rank(keyOf(job), laneOf(job), c.priorityOf(job))
	}
}

func (c *Controller) updated(old, job *unstructured.Unstructured) {
	c.seen(time.Time{})
	if api.Meta(old, "uid") != api.Meta(job, "uid") {
		c.deleted(old)
	}
	c.watch(job)
	c.meet(old, job)
	switch {
	case claimed(job):
	case eager(old, job):
		c.queue.hurry(keyOf(job), laneOf(job))
	case api.Meta(old, "uid") == api.Meta(job, "uid") && claimed(old):
		c.queue.addAfter(keyOf(job), laneOf(job), c.restOf(job))
	default:
		c.queue.rank(keyOf(job), laneOf(job), c.priorityOf(job))
	}
}

// eager says that a person wants something of a job that rests between two
// attempts, while nobody claims it: the rest was taken off it, or it was cancelled.
func eager(old, job *unstructured.Unstructured) bool {
	return api.Meta(old, "uid") == api.Meta(job, "uid") && !claimed(old) && !claimed(job) && notBefore(old) > 0 &&
		(notBefore(job) == 0 || cancelReason(old) == "" && cancelReason(job) != "")
}

// restOf is how long a job is left alone that was given back or taken away by
// somebody: as long as it says itself, else one interval, as with Grafana's
// drivers, so that it does not jump between agents.
func (c *Controller) restOf(job *unstructured.Unstructured) time.Duration {
	until := notBefore(job)
	if now, err := c.millis(); until > 0 && err == nil {
		return min(time.Duration(max(0, until-now))*time.Millisecond, c.o.Interval)
	}
	return c.o.Interval
}

// listing takes note that a list begins or ends to be shown.
func (c *Controller) listing(on bool) {
	if on {
		c.unwatch()
	}
	c.neighbours.list(on)
	c.crew.list(on)
}

// meet tells who has a claim, and who has one no more; old is how the job was
// before, or nil.
func (c *Controller) meet(old, job *unstructured.Unstructured) {
	c.restsElsewhere(job)
	uid, owner, l := api.Meta(job, "uid"), api.Label(job, api.LabelClaimOwner), laneOf(job)
	if !claimed(job) {
		c.crew.end(uid, l, false, time.Now())
	} else {
		c.crew.begin(uid, agentOf(owner), l, c.within(job), time.Now(), c.rivalry.head())
	}
	if c.neighbours.see(old, job) {
		c.queue.free(laneOf(job))
	}
}

// within says whether this agent takes jobs of that repository and action.
func (c *Controller) within(job *unstructured.Unstructured) bool {
	if !c.handles(api.Spec(job, "action")) {
		return false
	}
	l := laneOf(job)
	repo, ok := c.repos.Get(l.Namespace, l.Repository)
	return !ok && c.o.Selector.Empty() || ok && c.selected(repo)
}

func (c *Controller) deleted(job *unstructured.Unstructured) {
	c.crew.end(api.Meta(job, "uid"), laneOf(job), true, time.Now())
	if c.neighbours.gone(job) {
		c.queue.free(laneOf(job))
	}
	if _, ok := c.rested(api.Meta(job, "uid")); ok {
		c.lookAgain() // for sweep
	}
	if h := c.heldJob(api.Meta(job, "uid")); h != nil && h.interrupt("the job was deleted while it ran", true) {
		c.tell(EventCancelled, h.about, "the job was deleted while it ran")
	}
}

// watch stops the work on a job that a person has cancelled or is deleting.
func (c *Controller) watch(job *unstructured.Unstructured) {
	reason := cancelReason(job)
	if reason == "" {
		return
	}
	if h := c.heldJob(api.Meta(job, "uid")); h != nil && h.interrupt(reason, false) {
		c.tell(EventCancelled, h.about, reason)
	}
}

func (c *Controller) heldJob(uid string) *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[uid]
}

// list brings the jobs that nobody holds, and the unsettled claims, into the
// queue once per interval, and when the queue is short of names while more wait
// outside. It asks the cache of the watch, not the API. The first time is its
// caller's, just before.
func (c *Controller) list(ctx context.Context) {
	ticker := time.NewTicker(c.o.Interval)
	defer ticker.Stop()
	for {
		c.sweep(ctx)
		listed := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.again:
			pause(ctx, gathering)
		case <-c.queue.short:
			pause(ctx, c.fillRest()-time.Since(listed))
		}
		c.listOnce()
	}
}

// gathering is how long changes of Repositories are gathered before the jobs are
// looked at again, so that a thousand changes are one look.
const gathering = 200 * time.Millisecond

// lookAgain has the list looked at before its time.
func (c *Controller) lookAgain() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// repoHandler has the jobs looked at again when a Repository has changed in what
// decides about them: it came or went, is about to be deleted, or its labels or
// its priority are others.
func (c *Controller) repoHandler() kube.Handler {
	look := func(kube.Object) {
		if !c.jobs.HasSynced() || !c.repos.HasSynced() {
			return // the first look is still to come
		}
		c.lookAgain()
	}
	return kube.Handler{Add: look, Delete: look, Update: func(before, now kube.Object) {
		old, repo := before.Unstructured(), now.Unstructured()
		if api.Meta(old, "uid") != api.Meta(repo, "uid") || !maps.Equal(old.GetLabels(), repo.GetLabels()) ||
			api.Annotation(old, api.AnnoPriority) != api.Annotation(repo, api.AnnoPriority) ||
			(old.GetDeletionTimestamp() == nil) != (repo.GetDeletionTimestamp() == nil) {
			look(now)
		}
	}}
}

func (c *Controller) listOnce() {
	c.fill()
	for _, u := range c.allUnsettled() {
		c.queue.add(key{u.claim.Namespace, u.claim.Name}, lane{u.claim.Namespace, u.claim.Repository}, true)
	}
	if known, refused := c.queue.load(); refused > 0 {
		c.once("overflow", EventNote, about{}, plural(known, "job")+" are waiting in this agent; more are taken up as these are done")
	}
}
