package jobs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// Handlers of the watch: they put keys into the queue and keep what the parts have to know of the jobs of all agents.
// Whatever they miss the periodic scan finds. A name that was given to another object is a deletion and an addition.
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
		c.delay.reset(repoOf(job))
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
		c.delay.claimSeen(agentOf(owner), r, time.Now())
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

// backoffEnded reports that the backoff of a job between two attempts was ended on request: it was removed, or the job
// was cancelled, perhaps while it was being released.
func backoffEnded(old, job *unstructured.Unstructured) bool {
	cancelled := cancelReason(job) != "" && (cancelReason(old) == "" || claimed(old))
	return notBefore(old) > 0 && (notBefore(job) == 0 || cancelled) || claimed(old) && cancelled
}

// backoffOf is how long a job is delayed whose claim was removed: as long as it says itself, else one interval, as with
// Grafana's drivers, so that it does not jump between agents.
func (c *Controller) backoffOf(job *unstructured.Unstructured) time.Duration {
	until := notBefore(job)
	if now, err := c.env.clock.millis(); until > 0 && err == nil {
		return min(time.Duration(max(0, until-now))*time.Millisecond, c.env.o.Interval)
	}
	return c.env.o.Interval
}

// repoHandler has the jobs scanned again when a Repository has changed in what decides about them: it came or went, is
// about to be deleted, or its spec, its labels, its priority or its directory are others.
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

const (
	// gatherTime is how long changes of Repositories are gathered before the jobs are scanned again, so that a thousand
	// changes are one scan.
	gatherTime = 200 * time.Millisecond
	// minScanPause is the least time between two scans when the queue is short of keys: a scan of a hundred thousand
	// jobs takes a tenth of a second.
	minScanPause = 2 * time.Second
)

// scanner brings the jobs without a claim, and the pending claims, into the queue once per interval, and when the queue
// is short of keys while more wait outside. It reads the cache of the watch, not the API.
type scanner struct {
	*env
	queue     *workQueue
	jobs      lister
	admission *admission
	recoverer *recoverer
	again     chan struct{} // holds one token when a scan is due before its time

	// Memory of Run.
	pause        time.Duration // that scanPause returned last
	claimsBefore int64         // of this agent, when it did
}

// Run scans at each interval. The first scan is its caller's, just before.
func (s *scanner) Run(ctx context.Context) {
	ticker := time.NewTicker(s.o.Interval)
	defer ticker.Stop()
	for {
		s.queue.scanned()
		s.recoverer.sweep(ctx, s.jobs)
		scanned := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.again:
			pause(ctx, gatherTime)
		case <-s.queue.short:
			pause(ctx, s.scanPause()-time.Since(scanned))
		}
		s.runOnce()
	}
}

func (s *scanner) runOnce() {
	list := s.pick(s.jobs.Objects())
	// All come in before the first one goes out: otherwise a driver that waits would get that, whatever its rank.
	s.queue.change(func(q *queue.Queue, now time.Time) { q.Fill(now, list) })
	_, pending := s.claims.all()
	for _, p := range pending {
		ref := refOfClaim(p.claim)
		s.queue.add(ref.Key, ref.repo(), true, queue.Unranked)
	}
	var b Backlog
	if s.queue.count(&b) > 0 {
		waiting := text.Plural(b.Queued, "job")
		s.events.once("overflow", EventNote, jobRef{}, waiting+" are waiting in this agent; more are taken up as these are done")
	}
}

// scanPause is longer each time when this agent has claimed none of what the last scan brought: then its drivers ask
// the API about jobs that they skip.
func (s *scanner) scanPause() time.Duration {
	total := s.claims.total.Load()
	if total > s.claimsBefore || s.pause == 0 {
		s.claimsBefore, s.pause = total, minScanPause
	} else {
		s.pause = min(2*s.pause, s.o.Interval)
	}
	return s.pause
}

// pick returns the jobs without a claim that this agent can run now, as far as the cache knows. The first of each
// repository come before the second of any, so that one with ten thousand jobs keeps no other out of a queue that
// cannot take all.
func (s *scanner) pick(all []kube.Object) []queue.Candidate {
	now, err := s.clock.millis()
	if err != nil {
		now = 0 // then nothing is claimed anyway
	}
	type scanned struct {
		queue.Candidate
		nth     int   // in its repository
		created int64 // Unix seconds
	}
	selected := map[queue.RepoKey]bool{}
	var found []scanned
	for _, job := range all {
		if cachedClaimed(job) {
			continue
		}
		r := queue.RepoKey{Namespace: job.Namespace(), Repository: job.Text(pathRepository)}
		if _, known := selected[r]; !known {
			selected[r] = s.admission.selectsRepo(r)
		}
		if notBefore, _ := strconv.ParseInt(job.Text(pathNotBefore), 10, 64); !selected[r] || notBefore > now ||
			!s.admission.handles(job.Text(pathAction)) {
			continue
		}
		k := queue.Key{Namespace: job.Namespace(), Name: job.Name()}
		priority := s.admission.priority(job.Text(pathPriority), r)
		found = append(found, scanned{Candidate: queue.Candidate{Key: k, Repo: r, Priority: priority}, created: job.Created().Unix()})
	}
	s.events.measure(Seen{Source: SourceRelist, Count: len(found), Late: -1})
	slices.SortFunc(found, func(a, b scanned) int {
		return cmp.Or(b.Priority-a.Priority, cmp.Compare(a.created, b.created), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	count := map[queue.RepoKey]int{}
	for i := range found {
		count[found[i].Repo]++
		found[i].nth = count[found[i].Repo]
	}
	slices.SortStableFunc(found, func(a, b scanned) int { return a.nth - b.nth })
	list := make([]queue.Candidate, len(found))
	for i, x := range found {
		list[i] = x.Candidate
	}
	return list
}
