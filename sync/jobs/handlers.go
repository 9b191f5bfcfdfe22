package jobs

import (
	"maps"
	"time"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// Handlers of the watch: they put keys into the queue and keep what the parts have to know of the
// jobs of all agents. Whatever they miss the periodic scan finds.

func (c *Controller) jobHandler() kube.Handler {
	listing := false // handlers are called one at a time
	gone := func(o kube.Object) {
		job := shown(o)
		c.delay.Reset(job.repo())
		if c.exclusion.seen.see(job, true) {
			c.queue.release(job.repo())
		}
		c.cancelHeld(job.uid, "the job was deleted while it ran", true)
		if c.env.claims.dropKnown(job.uid) && !listing { // a list does not show what happened before the deletion
			c.recoverer.deleted(o.Unstructured())
		}
	}
	return kube.Handler{
		Add: func(o kube.Object) { c.jobChanged(shownJob{}, o) },
		Update: func(old, o kube.Object) {
			if old.UID() == o.UID() {
				c.jobChanged(shown(old), o)
				return
			}
			gone(old) // the name was given to another job
			c.jobChanged(shownJob{}, o)
		},
		Delete: gone,
		Listing: func(on bool) {
			listing = on
			c.exclusion.seen.setListing(on)
		},
	}
}

func (c *Controller) jobChanged(old shownJob, o kube.Object) {
	job := shown(o)
	// An agent that takes other jobs than this one does not come first anywhere.
	if job.claimed && c.admission.handles(job.action) && c.admission.selectsRepo(job.repo()) && (!old.claimed || old.owner != job.owner) {
		c.delay.ClaimSeen(agentOf(job.owner), job.repo(), time.Now())
	}
	if c.exclusion.seen.see(job, false) {
		c.queue.release(job.repo())
	}
	if job.cancel != "" {
		c.cancelHeld(job.uid, job.cancel, false)
	}
	seen := Seen{Source: SourceInitial, Count: 1, Late: -1}
	if c.jobs.HasSynced() {
		seen.Source = SourceLive
		created := o.Created()
		if now, bound, ok := c.env.clock.server.Now(); ok && bound < time.Second && old.uid == "" && !created.IsZero() {
			seen.Late = max(now.Sub(created), 0)
		}
	}
	c.env.events.measure(seen)
	switch {
	case job.claimed:
	case backoffEnded(old, job):
		c.queue.change(func(q *queue.Queue, now time.Time) { q.Expedite(now, job.Key, job.repo()) })
	case old.claimed:
		c.queue.addAfter(job.Key, job.repo(), c.backoffOf(job.notBefore))
	default:
		c.queue.add(job.Key, job.repo(), false, c.admission.priority(o.Text(pathPriority), job.repo()))
	}
}

// cancelHeld stops the work of this agent on a job that is cancelled or deleted.
func (c *Controller) cancelHeld(uid, reason string, gone bool) {
	if h := c.env.claims.get(uid); h != nil {
		h.cancelOnRequest(reason, gone)
	}
}

// backoffEnded reports that the backoff of a job between two attempts was ended on request: it was
// removed, or the job was cancelled, perhaps while it was being released.
func backoffEnded(old, job shownJob) bool {
	cancelled := job.cancel != "" && (old.cancel == "" || old.claimed)
	return old.notBefore > 0 && (job.notBefore == 0 || cancelled) || old.claimed && cancelled
}

// backoffOf is how long a job is delayed whose claim was removed: as long as it says itself, else
// one interval, as with Grafana's drivers, so that it does not jump between agents.
func (c *Controller) backoffOf(until int64) time.Duration {
	if now, err := c.env.clock.millis(); until > 0 && err == nil {
		return min(time.Duration(max(0, until-now))*time.Millisecond, c.env.o.Interval)
	}
	return c.env.o.Interval
}

// repoHandler has the jobs scanned again when a Repository has changed in what decides about them:
// it came or went, is about to be deleted, or its spec, its labels, its priority or its directory
// are others.
func (c *Controller) repoHandler() kube.Handler {
	scan := func(kube.Object) {
		if c.jobs.HasSynced() && c.admission.repos.HasSynced() { // else the first scan is still to come
			notify(c.scanner.again)
		}
	}
	return kube.Handler{Add: scan, Delete: scan, Update: func(before, o kube.Object) {
		old, repo := before.Unstructured(), o.Unstructured()
		if before.UID() != o.UID() || !maps.Equal(old.GetLabels(), repo.GetLabels()) ||
			api.Annotation(old, api.AnnoPriority) != api.Annotation(repo, api.AnnoPriority) ||
			api.Annotation(old, api.AnnoSinkDir) != api.Annotation(repo, api.AnnoSinkDir) || old.GetGeneration() != repo.GetGeneration() ||
			(old.GetDeletionTimestamp() == nil) != (repo.GetDeletionTimestamp() == nil) {
			scan(o)
		}
	}}
}
