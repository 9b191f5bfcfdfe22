// Package queue decides in which order an agent looks at jobs. It holds keys of jobs, never
// objects, and knows neither goroutines nor clocks: the time is an argument of every call. Its
// laws:
//
//   - A key is in it at most once. A key that is added while its job runs is
//     looked at again when the run is over.
//   - Keys of one repository form a repository queue. It is served by one driver
//     at a time, so two jobs of one repository never run together in this agent.
//   - A repository in backoff (another agent works on it) is not served before
//     its time or before it is released, but for own claims.
//   - A delayed key is not served before its time, whoever adds it.
//   - Keys with a claim of this agent to settle are urgent: they go first.
//   - A higher priority goes first, among the keys of a repository and among
//     repositories, where a repository counts as its best key.
//   - Repositories of equal priority take turns, in rounds: each is served once
//     in a round, and one that comes into turn joins the next round. So a
//     repository with ten thousand jobs delays the single job of another one by
//     two jobs at most. Within a round the order is the agent's own (Favour).
//   - Age beats rank: of every four takes one serves the key that has waited
//     longest of all whose repositories are free, and of every four takes from one
//     repository one serves its oldest key. Urgent takes do not count.
//
// So nothing starves. Let o be the keys that came before a key, and m those of them in its own
// repository. Of the takes while its repository is free, every fourth serves one of the o or the
// key itself: it waits for 4(o+1) of them at most. Where the repository is never free at the right
// moment, it is because it is served, and every fourth of these takes serves one of the m or the
// key itself: 4(m+1) at most. Neither number depends on what comes later. A key that comes back is
// as new as any other; only one that was taken in vain (its repository is in backoff) keeps its age
// and counts once more for each such take.
package queue

import (
	"cmp"
	"time"
)

// maxTries is how often in a row a key may fail on its way to a claim before it is left to the next
// periodic list. Source: Grafana's driver.
const maxTries = 3

// agedShare is one in how many takes goes by age instead of by rank.
const agedShare = 4

// Limit is how many keys the queue of an agent takes, at about 400 bytes each. Further jobs wait in
// the cache of the watch, which keeps each in a third of that.
const Limit = 16384

// Priorities of a key.
const (
	Ordinary = 5  // of a job that does not say
	Highest  = 9  // most urgent
	Unranked = -1 // the priority is not known, or stays as it is
)

// Key names a job. Names are reused, so a Key never identifies one.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// RepoKey names the repository whose jobs exclude each other.
type RepoKey struct{ Namespace, Repository string }

type place int8

const (
	waiting place = iota // in its repository queue
	running              // taken by a driver
	delayed              // until its time has come
)

// item is what the queue knows of one key.
type item struct {
	key   Key
	repo  RepoKey
	place place
	// wanted reports that the key has to be looked at again: after the run for a running one, after
	// the delay for a delayed one.
	wanted bool
	// urgent keys go before the others of their repository and are never given up.
	urgent bool
	// expedited is a running key that is not delayed when it comes back.
	expedited bool
	priority  int8
	tries     int32
	arrival   uint64    // when the key came, as a number that only grows
	until     time.Time // of the delay
	since     time.Time // when it came to wait
	ranked    int       // index in the ranked heap of its repository, or in delayed
	aged      int       // index in the aged heap of its repository
}

// repoQueue is a repository with its waiting keys.
type repoQueue struct {
	repo     RepoKey
	items    heap[item] // by rank
	old      heap[item] // the same ones by age
	busy     bool       // a driver has one of its keys
	released bool       // Release came while it was busy: the next backoff is void
	takes    int        // since its oldest key was taken
	class    int8       // priority of its best key when it came into turn
	round    uint64     // of its class
	favour   uint64
	until    time.Time // of the backoff; meaningless without one

	ranked, aged, resting int // indexes in the heaps of the queue
}

// Queue is the queue of one agent. It is not safe for concurrent use.
type Queue struct {
	items map[Key]*item
	repos map[RepoKey]*repoQueue
	// turn has the repositories that are neither busy nor empty nor in backoff, by rank, and old the
	// same ones by age. A repository in backoff is in turn while its best key is urgent.
	turn, old heap[repoQueue]
	delayed   heap[item]
	backoff   heap[repoQueue]
	rounds    [Highest + 1]uint64 // the round that is served, by priority
	takes     int                 // since the oldest key was taken
	arrivals  uint64
	added     uint64 // keys that came to wait
	limit     int
	refused   int // keys since the last Fill
	favour    func(RepoKey) uint64
}

// New returns an empty queue that takes limit keys. favour orders repositories within a round, the
// higher first; nil means by arrival.
func New(limit int, favour func(RepoKey) uint64) *Queue {
	return &Queue{
		items: map[Key]*item{},
		repos: map[RepoKey]*repoQueue{},
		turn:  rankedRepos(),
		old: heap[repoQueue]{place: func(r *repoQueue) *int { return &r.aged }, before: func(a, b *repoQueue) bool {
			return a.old.first().arrival < b.old.first().arrival
		}},
		delayed: heap[item]{place: func(s *item) *int { return &s.ranked }, before: func(a, b *item) bool {
			return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.arrival, b.arrival)) < 0
		}},
		backoff: heap[repoQueue]{place: func(r *repoQueue) *int { return &r.resting }, before: func(a, b *repoQueue) bool {
			return a.until.Before(b.until)
		}},
		limit:  limit,
		favour: favour,
	}
}

// full reports whether another key of a repository is refused, and counts it. The first key of a
// repository is not, so that one with many jobs keeps no other one out.
func (q *Queue) full(r RepoKey) bool {
	if len(q.items) < q.limit || q.repos[r] == nil {
		return false
	}
	q.refused++
	return true
}

// Candidate is a key that a scan brings in.
type Candidate struct {
	Key      Key
	Repo     RepoKey
	Priority int
}

// Fill brings keys in, the first ones first where there is no space for all.
func (q *Queue) Fill(now time.Time, list []Candidate) {
	q.refused = 0
	for _, c := range list {
		q.Add(now, c.Key, c.Repo, false, c.Priority)
	}
}

// Refused returns how many keys were refused since the last Fill, and Short whether it is time for
// another one: half of the keys have gone.
func (q *Queue) Refused() int { return q.refused }
func (q *Queue) Short() bool  { return q.refused > 0 && len(q.items) < q.limit/2 }

// Add brings a key in, with a priority from 0 to 9 or Unranked. It returns false when the queue is
// full. For a key that is known a new priority takes effect at once.
func (q *Queue) Add(now time.Time, k Key, r RepoKey, urgent bool, priority int) bool {
	s := q.items[k]
	if s == nil {
		if !urgent && q.full(r) {
			return false
		}
		s = q.newItem(k, r, priority)
		s.urgent = urgent
		q.wait(s, now)
		return true
	}
	if priority != Unranked {
		s.priority = int8(priority)
	}
	s.urgent = s.urgent || urgent
	if s.place == waiting {
		q.wait(s, now)
	} else {
		s.wanted = true
	}
	return true
}

// AddAfter brings a key in that must not be served before a delay has passed. A key that already
// waits or runs is not held back.
func (q *Queue) AddAfter(now time.Time, k Key, r RepoKey, delay time.Duration) bool {
	if q.items[k] != nil {
		return q.Add(now, k, r, false, Unranked)
	}
	if q.full(r) {
		return false
	}
	s := q.newItem(k, r, Unranked)
	s.wanted = true
	q.delay(s, now.Add(delay))
	return true
}

// Expedite brings a key in and ends its delay.
func (q *Queue) Expedite(now time.Time, k Key, r RepoKey) {
	if s := q.items[k]; s != nil && s.place == delayed {
		q.delayed.remove(s)
		q.wait(s, now)
		return
	}
	if s := q.items[k]; s != nil && s.place == running {
		s.expedited = true
	}
	q.Add(now, k, r, false, Unranked)
}

func (q *Queue) newItem(k Key, r RepoKey, priority int) *item {
	if priority == Unranked {
		priority = Ordinary
	}
	q.arrivals++
	s := &item{key: k, repo: r, priority: int8(priority), arrival: q.arrivals, ranked: absent, aged: absent}
	q.items[k] = s
	return s
}

// Next takes the key whose turn it is, and returns since when it has waited. With urgentOnly it
// takes none but urgent ones.
func (q *Queue) Next(now time.Time, urgentOnly bool) (k Key, r RepoKey, since time.Time, ok bool) {
	if !q.Ready(now, urgentOnly) {
		return Key{}, RepoKey{}, time.Time{}, false
	}
	rq := q.turn.first()
	s := rq.items.first()
	if !s.urgent {
		rq, s = q.pick(rq)
	}
	rq.items.remove(s)
	rq.old.remove(s)
	rq.busy, rq.released = true, false
	q.settle(rq)
	s.place = running
	s.wanted = false
	s.expedited = false
	return s.key, s.repo, s.since, true
}

// pick chooses by rank or by age. best is the repository that is first by rank.
func (q *Queue) pick(best *repoQueue) (*repoQueue, *item) {
	rq, oldest := best, q.old.first()
	q.takes++
	if q.takes >= agedShare {
		rq = oldest
	}
	s := rq.items.first()
	rq.takes++
	if rq.takes >= agedShare || q.takes >= agedShare {
		s = rq.old.first()
	}
	if s == rq.old.first() {
		rq.takes = 0
		if rq == oldest {
			q.takes = 0
		}
	}
	if s == rq.items.first() {
		q.rounds[rq.class] = max(q.rounds[rq.class], rq.round)
	}
	return rq, s
}

// Result is what a driver returns with a key. The zero Result forgets the key, unless it was added
// again in the meantime.
type Result struct {
	// Retry asks for another look after a backoff that grows with each retry.
	Retry bool
	// Progressed reports that the key got to its claim, so that this retry is the first of a new row.
	Progressed bool
	// Requeue asks for another look, as soon as After is over.
	Requeue bool
	// After keeps the key out for that long, whoever adds it.
	After time.Duration
	// RepoAfter keeps the whole repository out for that long, or until Release.
	RepoAfter time.Duration
	// Repo, when set, is the repository where the key belongs: its name was given to a job of another
	// one in the meantime.
	Repo *RepoKey
	// Urgent makes the key urgent, and NotUrgent makes it an ordinary one again.
	Urgent, NotUrgent bool
}

// Done gives back a key that Next has returned.
func (q *Queue) Done(now time.Time, k Key, r Result) {
	s := q.items[k]
	if s == nil || s.place != running {
		panic("jobs: internal error: Done of a key that is not running")
	}
	if rq := q.repos[s.repo]; rq != nil {
		rq.busy = false
		if r.RepoAfter > 0 && !rq.released {
			rq.until = now.Add(r.RepoAfter)
			q.backoff.put(rq)
		}
		q.settle(rq)
	}
	s.urgent = (s.urgent || r.Urgent) && !r.NotUrgent
	if r.RepoAfter == 0 {
		q.arrivals++
		s.arrival = q.arrivals
	}
	if r.Repo != nil {
		s.repo = *r.Repo
	}
	wanted := s.wanted || r.Requeue || r.Retry
	if r.Progressed {
		s.tries = 0
	}
	s.tries++
	switch {
	case !r.Retry:
		s.tries = 0
		if s.expedited {
			r.After = 0
		}
	case s.tries >= maxTries && !s.urgent:
		delete(q.items, k)
		return
	default:
		r.After = max(r.After, RetryDelay(int(s.tries)))
	}
	switch {
	case r.After > 0:
		s.wanted = wanted
		q.delay(s, now.Add(r.After))
	case wanted:
		q.wait(s, now)
	default:
		delete(q.items, k)
	}
}

// RetryDelay is the backoff after the try-th failure in a row: 250 ms, 500 ms, 1 s and so on up to
// 30 s.
func RetryDelay(try int) time.Duration {
	return min(250*time.Millisecond<<min(max(try-1, 0), 7), 30*time.Second)
}

// Release ends the backoff of a repository, also the one that the driver which is at it is about to
// report.
func (q *Queue) Release(r RepoKey) {
	rq := q.repos[r]
	switch {
	case rq == nil:
	case rq.busy:
		rq.released = true
	case q.backoff.holds(rq):
		q.backoff.remove(rq)
		q.settle(rq)
	}
}

// Ready reports whether Next would return a key.
func (q *Queue) Ready(now time.Time, urgentOnly bool) bool {
	q.promote(now)
	return q.turn.Len() > 0 && (!urgentOnly || q.turn.first().items.first().urgent)
}

// Due returns when the next delayed key or repository in backoff may be served.
func (q *Queue) Due() (at time.Time, ok bool) {
	if s := q.delayed.first(); s != nil {
		at, ok = s.until, true
	}
	if rq := q.backoff.first(); rq != nil && (!ok || rq.until.Before(at)) {
		at, ok = rq.until, true
	}
	return at, ok
}

// Len returns the number of known keys: those that wait, run or are delayed.
func (q *Queue) Len() int { return len(q.items) }

// Delayed returns how many of them are delayed, and Added how many have come to wait since the
// start.
func (q *Queue) Delayed() int  { return q.delayed.Len() }
func (q *Queue) Added() uint64 { return q.added }

// promote lets keys and repositories in whose time has come.
func (q *Queue) promote(now time.Time) {
	for s := q.delayed.first(); s != nil && !s.until.After(now); s = q.delayed.first() {
		q.delayed.remove(s)
		if s.wanted {
			q.wait(s, now)
		} else {
			delete(q.items, s.key)
		}
	}
	for rq := q.backoff.first(); rq != nil && !rq.until.After(now); rq = q.backoff.first() {
		q.backoff.remove(rq)
		q.settle(rq)
	}
}

func (q *Queue) delay(s *item, until time.Time) {
	s.place, s.until = delayed, until
	q.delayed.put(s)
}

// wait puts an item into its repository queue, or moves it there, and the repository into turn.
func (q *Queue) wait(s *item, now time.Time) {
	s.place, s.wanted = waiting, false
	rq := q.repos[s.repo]
	if rq == nil {
		rq = &repoQueue{repo: s.repo, items: rankedItems(), old: agedItems(), ranked: absent, aged: absent, resting: absent}
		if q.favour != nil {
			rq.favour = q.favour(s.repo)
		}
		q.repos[s.repo] = rq
	}
	if !rq.items.holds(s) {
		s.since = now
		q.added++
	}
	rq.items.put(s)
	rq.old.put(s)
	q.settle(rq)
}

// settle brings a repository into turn or out of it, to its place there, or forgets it when it is
// empty.
func (q *Queue) settle(rq *repoQueue) {
	best := rq.items.first()
	rests := q.backoff.holds(rq)
	if rq.busy || best == nil || rests && !best.urgent {
		q.turn.remove(rq)
		q.old.remove(rq)
		if best == nil && !rq.busy && !rests {
			delete(q.repos, rq.repo)
		}
		return
	}
	if !q.turn.holds(rq) || rq.class != best.priority {
		rq.class = best.priority
		rq.round = q.rounds[rq.class] + 1
	}
	q.turn.put(rq)
	q.old.put(rq)
}
