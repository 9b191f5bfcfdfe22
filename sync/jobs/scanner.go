package jobs

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
	"limpet/sync/text"
)

const (
	// gatherTime is how long changes of Repositories are gathered before the jobs are
	// scanned again, so that a thousand changes are one scan.
	gatherTime = 200 * time.Millisecond
	// minScanPause is the least time between two scans when the queue is short of
	// keys: a scan of a hundred thousand jobs takes a tenth of a second.
	minScanPause = 2 * time.Second
)

// scanner brings the jobs without a claim, and the pending claims, into the queue
// once per interval, and when the queue is short of keys while more wait outside. It
// reads the cache of the watch, not the API.
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

// soon has the jobs scanned before the interval is over.
func (s *scanner) soon() { notify(s.again) }

// runOnce fills the queue.
func (s *scanner) runOnce() {
	s.queue.resetOverflow() // the scan finds out what waits outside
	s.queue.fill(s.pick(s.jobs.Objects(), queue.Limit))
	_, pending := s.claims.all()
	for _, p := range pending {
		ref := refOfClaim(p.claim)
		s.queue.add(ref.Key, ref.repo(), true, queue.Unranked)
	}
	if known, refused := s.queue.load(); refused > 0 {
		s.events.once("overflow", EventNote, jobRef{}, text.Plural(known, "job")+" are waiting in this agent; more are taken up as these are done")
	}
}

// scanPause is longer each time when this agent has claimed none of what the last
// scan brought: then its drivers ask the API about jobs that they skip.
func (s *scanner) scanPause() time.Duration {
	total := s.claims.total.Load()
	if total > s.claimsBefore || s.pause == 0 {
		s.claimsBefore, s.pause = total, minScanPause
	} else {
		s.pause = min(2*s.pause, s.o.Interval)
	}
	return s.pause
}

// scanned is a job without a claim, on its way into the queue. There may be a
// hundred thousand of them.
type scanned struct {
	repo     *scannedRepo
	created  int64 // Unix seconds
	job      int32 // index
	priority int8
	able     bool // as far as the cache knows, this agent can run it now
	picked   bool
}

// scannedRepo is what the jobs of one repository have in common.
type scannedRepo struct {
	repo     queue.RepoKey
	selected bool // by the repository selector
	picked   int  // jobs that were picked
}

// pick picks the jobs that go into the queue next, and returns which repositories have more
// of them. Of few jobs it picks all. Of many it picks so that the queue decides as if it
// knew them all: of each repository the oldest ones and the best ones. What this agent
// cannot run comes last, and because the cache does not show all of that (a credential is
// missing), one in four is picked by chance.
func (s *scanner) pick(all []kube.Object, limit int) (picked []candidate, outside map[queue.RepoKey]struct{}) {
	found, repos := s.scan(all)
	s.events.measure(Seen{Source: SourceRelist, Count: len(found), Late: -1})
	slices.SortFunc(found, func(a, b *scanned) int {
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(all[a.job].Key(), all[b.job].Key()))
	})
	n := 0
	take := func(list []*scanned, most, perRepo int, able bool) {
		for _, x := range list {
			if n < most && !x.picked && (x.able || !able) && x.repo.picked < perRepo {
				x.picked = true
				x.repo.picked++
				n++
			}
		}
	}
	if len(found) > limit {
		share := max(queue.RepoShare, limit/len(repos))
		take(found, limit/4, max(1, share/4), true) // the share of the queue that goes by age
		other := slices.Clone(found)
		rand.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		take(other, limit/2, limit, true)
		ranked := slices.Clone(found)
		slices.SortStableFunc(ranked, func(a, b *scanned) int { return int(b.priority) - int(a.priority) })
		take(ranked, limit, share, true)
		take(ranked, limit, limit, true)
	}
	take(found, limit, limit, false)
	outside = map[queue.RepoKey]struct{}{}
	for _, x := range found {
		switch {
		case x.picked:
			picked = append(picked, candidate{cachedKey(all[x.job]), x.repo.repo, int(x.priority)})
		case x.able:
			outside[x.repo.repo] = struct{}{}
		}
	}
	return picked, outside
}

// scan returns the jobs without a claim.
func (s *scanner) scan(all []kube.Object) ([]*scanned, map[queue.RepoKey]*scannedRepo) {
	now, err := s.clock.millis()
	if err != nil {
		now = 0 // then nothing is claimed anyway
	}
	repos := map[queue.RepoKey]*scannedRepo{}
	var found []*scanned
	for i, job := range all {
		if cachedClaimed(job) {
			continue
		}
		r := cachedRepo(job)
		repo := repos[r]
		if repo == nil {
			repo = &scannedRepo{repo: r, selected: s.admission.selectsRepo(r)}
			repos[r] = repo
		}
		notBefore, _ := strconv.ParseInt(job.Text(pathNotBefore), 10, 64)
		priority := s.admission.priority(job.Text(pathPriority), r, func() jobRef { return refOf(job.Unstructured()) })
		found = append(found, &scanned{
			repo: repo, created: job.Created().Unix(), job: int32(i), priority: int8(priority),
			able: repo.selected && notBefore <= now && s.admission.handles(job.Text(pathAction)),
		})
	}
	return found, repos
}
