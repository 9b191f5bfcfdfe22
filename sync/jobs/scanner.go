package jobs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// scanner brings the jobs without a claim, and the pending claims, into the queue once per
// interval, and when the queue is short of keys while more wait outside. It reads the cache of the
// watch, not the API.
type scanner struct {
	env       *env
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
	ticker := time.NewTicker(s.env.o.Interval)
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
			_ = kube.Sleep(ctx, gatherTime)
		case <-s.queue.short:
			_ = kube.Sleep(ctx, s.scanPause()-time.Since(scanned))
		}
		s.runOnce()
	}
}

func (s *scanner) runOnce() {
	list := s.pick(s.jobs.Objects())
	// All come in before the first one goes out: otherwise a driver that waits would get that,
	// whatever its rank.
	s.queue.change(func(q *queue.Queue, now time.Time) { q.Fill(now, list) })
	_, pending := s.env.claims.all()
	for _, p := range pending {
		ref := refOfClaim(p.claim)
		s.queue.add(ref.Key, ref.repo(), true, queue.Unranked)
	}
	var b Backlog
	if s.queue.count(&b) > 0 {
		waiting := text.Plural(b.Queued, "job")
		s.env.events.once("overflow", EventNote, jobRef{}, waiting+" are waiting in this agent; more are taken up as these are done")
	}
}

// scanPause is longer each time when this agent has claimed none of what the last scan brought:
// then its drivers ask the API about jobs that they skip.
func (s *scanner) scanPause() time.Duration {
	total := s.env.claims.total.Load()
	if total > s.claimsBefore || s.pause == 0 {
		s.claimsBefore, s.pause = total, minScanPause
	} else {
		s.pause = min(2*s.pause, s.env.o.Interval)
	}
	return s.pause
}

// pick returns the jobs without a claim that this agent can run now, as far as the cache knows. The
// first of each repository come before the second of any, so that one with ten thousand jobs keeps
// no other out of a queue that cannot take all.
func (s *scanner) pick(all []kube.Object) []queue.Candidate {
	now, err := s.env.clock.millis()
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
	s.env.events.measure(Seen{Source: SourceRelist, Count: len(found), Late: -1})
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

const (
	// gatherTime is how long changes of Repositories are gathered before the jobs are scanned again,
	// so that a thousand changes are one scan.
	gatherTime = 200 * time.Millisecond
	// minScanPause is the least time between two scans when the queue is short of keys: a scan of a
	// hundred thousand jobs takes a tenth of a second.
	minScanPause = 2 * time.Second
)
