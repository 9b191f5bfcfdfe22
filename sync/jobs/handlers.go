package jobs

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// Handlers of the watch do nothing but put names into the queue and pass on the
// wish to stop. Whatever they miss the periodic list brings.

func (c *Controller) handler() api.Handler {
	return api.Handler{Add: c.added, Update: c.updated, Delete: c.deleted}
}

func (c *Controller) added(job *unstructured.Unstructured) {
	c.seen(job.GetCreationTimestamp().Time)
	c.watch(job)
	if !claimed(job) {
		c.queue.add(keyOf(job), laneOf(job), false)
	}
}

func (c *Controller) updated(old, job *unstructured.Unstructured) {
	c.seen(time.Time{})
	if old.GetUID() != job.GetUID() {
		c.deleted(old)
	}
	c.watch(job)
	switch {
	case claimed(job):
	case eager(old, job):
		c.queue.hurry(keyOf(job), laneOf(job))
	case old.GetUID() == job.GetUID() && claimed(old):
		// Given back or taken away by somebody: rest for one interval, as
		// Grafana's drivers do, so that a job does not jump between agents.
		c.queue.addAfter(keyOf(job), laneOf(job), c.o.Interval)
	default:
		c.queue.add(keyOf(job), laneOf(job), false)
	}
}

func (c *Controller) deleted(job *unstructured.Unstructured) {
	if h := c.heldJob(string(job.GetUID())); h != nil && h.interrupt("the job was deleted while it ran", true) {
		c.tell(EventCancelled, h.about, "the job was deleted while it ran")
	}
}

// watch stops the work on a job that a person has cancelled or is deleting.
func (c *Controller) watch(job *unstructured.Unstructured) {
	reason := cancelReason(job)
	if reason == "" {
		return
	}
	if h := c.heldJob(string(job.GetUID())); h != nil && h.interrupt(reason, false) {
		c.tell(EventCancelled, h.about, reason)
	}
}

func (c *Controller) heldJob(uid string) *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[uid]
}

// list brings every job that nobody holds, and the unsettled claims, into the
// queue once per interval. It asks the cache of the watch, not the API.
func (c *Controller) list(ctx context.Context) {
	ticker := time.NewTicker(c.o.Interval)
	defer ticker.Stop()
	for {
		c.listOnce()
		c.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Controller) listOnce() {
	for _, job := range c.jobs.Sights() {
		if !claimedSight(job) {
			c.o.Meter.Seen(SourceRelist, -1)
			c.queue.add(keyOfSight(job), laneOfSight(job), false)
		}
	}
	c.mu.Lock()
	own := make([]unsettled, 0, len(c.unsettled))
	for _, u := range c.unsettled {
		own = append(own, u)
	}
	c.mu.Unlock()
	for _, u := range own {
		c.queue.add(key{u.claim.Namespace, u.claim.Name}, lane{u.claim.Namespace, u.claim.Repository}, true)
	}
	if known, refused := c.queue.load(); refused > 0 {
		c.once("overflow", EventNote, about{}, plural(known, "job")+" are waiting in this agent; more are taken up as these are done")
	}
}
