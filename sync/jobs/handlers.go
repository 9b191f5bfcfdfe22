package jobs

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// Handlers of the watch: they put keys into the queue and keep what the parts have to know of the
// jobs of all agents. Whatever they miss the periodic scan finds. A name that was given to another
// object is a deletion and an addition.
func handler(changed func(old, obj *unstructured.Unstructured), deleted func(obj *unstructured.Unstructured)) kube.Handler {
	return kube.Handler{
		Add: func(o kube.Object) { changed(nil, o.Unstructured()) },
		Update: func(before, o kube.Object) {
			old, obj := before.Unstructured(), o.Unstructured()
			if api.Meta(old, "uid") != api.Meta(obj, "uid") {
				deleted(old)
				old = nil
			}
			changed(old, obj)
		},
		Delete: func(o kube.Object) { deleted(o.Unstructured()) },
	}
}

func (c *Controller) jobHandler() kube.Handler {
	listing := false // handlers are called one at a time
	h := handler(c.jobChanged, func(job *unstructured.Unstructured) {
		c.delay.Reset(repoOf(job))
		if c.exclusion.seen.see(job, true) {
			c.queue.release(repoOf(job))
		}
		c.cancelHeld(job, "the job was deleted while it ran", true)
		if c.env.claims.dropKnown(api.Meta(job, "uid")) && !listing { // a list does not show what happened before the deletion
			c.recoverer.deleted(job)
		}
	})
	h.Listing = func(on bool) {
		listing = on
		c.exclusion.seen.setListing(on)
	}
	return h
}

func (c *Controller) jobChanged(old, job *unstructured.Unstructured) {
	owner, r := api.Label(job, api.LabelClaimOwner), repoOf(job)
	// An agent that takes other jobs than this one does not come first anywhere.
	if claimed(job) && c.admission.handles(api.Spec(job, "action")) && c.admission.selectsRepo(r) &&
		(old == nil || api.Label(old, api.LabelClaimOwner) != owner) {
		c.delay.ClaimSeen(agentOf(owner), r, time.Now())
	}
	if c.exclusion.seen.see(job, false) {
		c.queue.release(r)
	}
	if reason := cancelReason(job); reason != "" {
		c.cancelHeld(job, reason, false)
	}
	seen := Seen{Source: SourceInitial, Count: 1, Late: -1}
	if c.jobs.HasSynced() {
		seen.Source = SourceLive
		created := job.GetCreationTimestamp().Time
		if now, bound, ok := c.env.clock.server.Now(); ok && bound < time.Second && old == nil && !created.IsZero() {
			seen.Late = max(now.Sub(created), 0)
		}
	}
	c.env.events.measure(seen)
	switch {
	case claimed(job):
	case old != nil && backoffEnded(old, job):
		c.queue.change(func(q *queue.Queue, now time.Time) { q.Expedite(now, keyOf(job), r) })
	case old != nil && claimed(old):
		c.queue.addAfter(keyOf(job), r, c.backoffOf(job))
	default:
		c.queue.add(keyOf(job), r, false, c.admission.priority(api.Annotation(job, api.AnnoPriority), r))
	}
}

// cancelHeld stops the work of this agent on a job that is cancelled or deleted.
func (c *Controller) cancelHeld(job *unstructured.Unstructured, reason string, gone bool) {
	if h := c.env.claims.get(api.Meta(job, "uid")); h != nil {
		h.cancelOnRequest(reason, gone)
	}
}

// backoffEnded reports that the backoff of a job between two attempts was ended on request: it was
// removed, or the job was cancelled, perhaps while it was being released.
func backoffEnded(old, job *unstructured.Unstructured) bool {
	cancelled := cancelReason(job) != "" && (cancelReason(old) == "" || claimed(old))
	return notBefore(old) > 0 && (notBefore(job) == 0 || cancelled) || claimed(old) && cancelled
}

// backoffOf is how long a job is delayed whose claim was removed: as long as it says itself, else
// one interval, as with Grafana's drivers, so that it does not jump between agents.
func (c *Controller) backoffOf(job *unstructured.Unstructured) time.Duration {
	until := notBefore(job)
	if now, err := c.env.clock.millis(); until > 0 && err == nil {
		return min(time.Duration(max(0, until-now))*time.Millisecond, c.env.o.Interval)
	}
	return c.env.o.Interval
}

// repoHandler has the jobs scanned again when a Repository has changed in what decides about them:
// it came or went, is about to be deleted, or its spec, its labels, its priority or its directory
// are others.
func (c *Controller) repoHandler() kube.Handler {
	scan := func(*unstructured.Unstructured) {
		if c.jobs.HasSynced() && c.admission.repos.HasSynced() { // else the first scan is still to come
			notify(c.scanner.again)
		}
	}
	return handler(func(old, repo *unstructured.Unstructured) {
		if old == nil || !maps.Equal(old.GetLabels(), repo.GetLabels()) ||
			api.Annotation(old, api.AnnoPriority) != api.Annotation(repo, api.AnnoPriority) ||
			api.Annotation(old, api.AnnoSinkDir) != api.Annotation(repo, api.AnnoSinkDir) || old.GetGeneration() != repo.GetGeneration() ||
			(old.GetDeletionTimestamp() == nil) != (repo.GetDeletionTimestamp() == nil) {
			scan(repo)
		}
	}, scan)
}
