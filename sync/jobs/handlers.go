package jobs

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Handlers of the watch. Whatever they miss the periodic scan finds. watchJobs
// enqueues keys and does nothing else; each other handler keeps what one part has to
// know of the jobs of all agents.

// handler receives changes of one resource, in order and one at a time.
type handler struct {
	add, deleted func(obj *unstructured.Unstructured)
	update       func(old, obj *unstructured.Unstructured)
	listing      func(on bool) // nil = it does not matter
}

// chain has each change seen by one handler after the other. A name that was given to
// another object is a deletion and an addition.
func chain(handlers ...handler) kube.Handler {
	each := func(fn func(h handler)) {
		for _, h := range handlers {
			fn(h)
		}
	}
	return kube.Handler{
		Add: func(o kube.Object) {
			obj := o.Unstructured()
			each(func(h handler) { h.add(obj) })
		},
		Update: func(before, o kube.Object) {
			old, obj := before.Unstructured(), o.Unstructured()
			same := api.Meta(old, "uid") == api.Meta(obj, "uid")
			each(func(h handler) {
				if same {
					h.update(old, obj)
				} else {
					h.deleted(old)
					h.add(obj)
				}
			})
		},
		Delete: func(o kube.Object) {
			obj := o.Unstructured()
			each(func(h handler) { h.deleted(obj) })
		},
		Listing: func(on bool) {
			each(func(h handler) {
				if h.listing != nil {
					h.listing(on)
				}
			})
		},
	}
}

// jobHandler is the handler of Jobs. A key goes into the queue when the parts know
// what it is about.
func (c *Controller) jobHandler() kube.Handler {
	return chain(c.watchClaims(), c.watchCancellations(), c.watchBackoffs(), c.watchJobs())
}

// watchJobs enqueues the keys of jobs without a claim.
func (c *Controller) watchJobs() handler {
	return handler{
		add: func(job *unstructured.Unstructured) {
			c.measureSeen(job.GetCreationTimestamp().Time)
			c.enqueue(job)
		},
		update: func(old, job *unstructured.Unstructured) {
			c.measureSeen(time.Time{})
			switch {
			case claimed(job):
			case !claimed(old) && backoffEnded(old, job):
				c.queue.expedite(keyOf(job), repoOf(job))
			case claimed(old):
				c.queue.addAfter(keyOf(job), repoOf(job), c.backoffOf(job))
			default:
				c.enqueue(job)
			}
		},
		deleted: func(*unstructured.Unstructured) {}, // a key of a job that is gone is skipped
	}
}

func (c *Controller) enqueue(job *unstructured.Unstructured) {
	if !claimed(job) {
		priority := c.admission.priority(api.Annotation(job, api.AnnoPriority), repoOf(job), func() jobRef { return refOf(job) })
		c.queue.addRanked(keyOf(job), repoOf(job), priority)
	}
}

// backoffEnded reports that the backoff of a job between two attempts was ended on
// request: it was removed, or the job was cancelled.
func backoffEnded(old, job *unstructured.Unstructured) bool {
	return notBefore(old) > 0 && (notBefore(job) == 0 || cancelReason(old) == "" && cancelReason(job) != "")
}

// backoffOf is how long a job is delayed whose claim was removed: as long as it says
// itself, else one interval, as with Grafana's drivers, so that it does not jump
// between agents.
func (c *Controller) backoffOf(job *unstructured.Unstructured) time.Duration {
	until := notBefore(job)
	if now, err := c.env.clock.millis(); until > 0 && err == nil {
		return min(time.Duration(max(0, until-now))*time.Millisecond, c.env.o.Interval)
	}
	return c.env.o.Interval
}

// measureSeen counts a change that the watch has shown.
func (c *Controller) measureSeen(created time.Time) {
	seen := Seen{Source: SourceInitial, Count: 1, Late: -1}
	if c.jobs.HasSynced() {
		seen.Source = SourceLive
		if now, bound, ok := c.env.clock.server.Now(); ok && bound < time.Second && !created.IsZero() {
			seen.Late = max(now.Sub(created), 0)
		}
	}
	c.env.events.measure(seen)
}

// watchClaims keeps the claims of other agents. When the last one on a repository
// ends, the repository is served again.
func (c *Controller) watchClaims() handler {
	foreign, delay := c.foreign, c.delay
	freed := func(job *unstructured.Unstructured, freed bool) {
		if freed {
			c.queue.release(repoOf(job))
		}
	}
	deleted := func(job *unstructured.Unstructured) {
		delay.reset(repoOf(job))
		freed(job, foreign.deleted(job))
	}
	see := func(old, job *unstructured.Unstructured) {
		// An agent that takes other jobs than this one does not come first anywhere.
		if claimed(job) && c.admission.handles(api.Spec(job, "action")) && c.admission.selectsRepo(repoOf(job)) &&
			(old == nil || api.Label(old, api.LabelClaimOwner) != api.Label(job, api.LabelClaimOwner)) {
			delay.claimSeen(agentOf(api.Label(job, api.LabelClaimOwner)), repoOf(job), time.Now())
		}
		freed(job, foreign.see(old, job))
	}
	return handler{
		add:     func(job *unstructured.Unstructured) { see(nil, job) },
		update:  see,
		deleted: deleted,
		listing: foreign.setListing,
	}
}

// watchCancellations stops the work on a job that is cancelled or deleted.
func (c *Controller) watchCancellations() handler {
	stop := func(job *unstructured.Unstructured, reason string, gone bool) {
		if h := c.env.claims.get(api.Meta(job, "uid")); h != nil && reason != "" {
			h.cancelOnRequest(reason, gone)
		}
	}
	return handler{
		add:     func(job *unstructured.Unstructured) { stop(job, cancelReason(job), false) },
		update:  func(_, job *unstructured.Unstructured) { stop(job, cancelReason(job), false) },
		deleted: func(job *unstructured.Unstructured) { stop(job, "the job was deleted while it ran", true) },
	}
}

// watchBackoffs has the jobs in backoff recorded that are deleted.
func (c *Controller) watchBackoffs() handler {
	listing := false
	ignore := func(*unstructured.Unstructured) {}
	return handler{
		add: ignore, update: func(_, _ *unstructured.Unstructured) {},
		deleted: func(job *unstructured.Unstructured) {
			if !listing && c.backoffs.deleted(job) { // a list does not show what happened before the deletion
				c.scanner.soon()
			}
		},
		listing: func(on bool) { listing = on },
	}
}

// watchRepos has the jobs scanned again when a Repository has changed in what
// decides about them: it came or went, is about to be deleted, or its labels or
// its priority are others.
func (c *Controller) watchRepos() handler {
	scan := func(*unstructured.Unstructured) {
		if c.jobs.HasSynced() && c.admission.repos.HasSynced() { // else the first scan is still to come
			c.scanner.soon()
		}
	}
	return handler{add: scan, deleted: scan, update: func(old, repo *unstructured.Unstructured) {
		if !maps.Equal(old.GetLabels(), repo.GetLabels()) ||
			api.Annotation(old, api.AnnoPriority) != api.Annotation(repo, api.AnnoPriority) ||
			(old.GetDeletionTimestamp() == nil) != (repo.GetDeletionTimestamp() == nil) {
			scan(repo)
		}
	}}
}
