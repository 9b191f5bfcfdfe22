package jobs

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A fleet is many agents on one modelled API: a simulation of events. The queue,
// the order in it, the hesitation, the terms of the lease and the backoff are
// those of the room; workers, informers and connections are numbers. An agent
// that learns of a job but would not act before it sees the claim of another is
// not woken: its share of the traffic is computed.

// fleetPlan is what is simulated.
type fleetPlan struct {
	agents, repositories int
	perDay               float64 // jobs, at random times; 0 = none
	groups               int     // shares of repositories and of agents
	reach                reach
	work                 time.Duration // of a job, on the average
	patches              int           // other writes of a job's worker: status of the Repository
	drivers              int
	think                time.Duration // what an agent itself takes for one call: its state file, its processor
	closed               int           // posters that each post their next job when the last one is posted
	jobs                 int           // that they post in all
	seed                 uint64
}

// reach says how far the groups are kept apart.
type reach int

const (
	bySelector  reach = iota // everybody hears of all jobs, and of the repositories of the group
	byNamespace              // each group has a namespace of its own
)

// Sizes in bytes of what is watched, as JSON. A job was measured; a Repository
// with its status is about twice as large.
const repositorySize = 2.0

// fleetJob is one job. Times are from the beginning of the simulation; 0 = not
// yet.
type fleetJob struct {
	key               key
	uid               string
	repo, group       int
	posted            time.Duration
	claimed           time.Duration // accepted by the server
	seen              time.Duration // the claim, by the last agent
	deleted, forgot   time.Duration // the same of the removal
	owner             int
	waiting           turns
	beyond            bool          // there may be agents beyond the horizon
	seenFrom, seenTil time.Duration // of the job itself
}

// turns are agents by the time when they would act.
type turnAt struct {
	at    time.Duration
	agent int
}
type turns []turnAt

func (r turns) Len() int           { return len(r) }
func (r turns) Less(i, j int) bool { return r[i].at < r[j].at }
func (r turns) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *turns) Push(x any)        { *r = append(*r, x.(turnAt)) }
func (r *turns) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}

type fleetAgent struct {
	group   int
	free    int // drivers
	rivalry rivalry
	queue   *queue
	refills int
	wake    time.Duration // when it looks at its queue again by itself

	prefix  uint64        // hash of its name
	bound   float64       // of the hashes that are below the horizon
	boundOf time.Duration // with this window
}

type fleet struct {
	fleetPlan
	api    *fleetAPI
	random *rand.Rand
	base   time.Time // of the times that the queues are told

	now    time.Duration
	clock  events
	serial uint64

	members   [][]int // agents by group
	all       []fleetAgent
	jobs      map[string]*fleetJob // by name
	busy      map[int]*fleetJob    // by repository; the one that is claimed, if any is
	resting   map[int][]int        // agents that let a repository rest, by repository
	backlog   [][]*fleetJob        // by group; jobs that were there before the agents
	posted    int
	refused   int // posts while the repository had a live job
	taken     int
	done      int
	lost      int // races
	yields    int
	latencies []time.Duration
	ended     time.Duration // last removal
	drowned   time.Duration // when the server was so late that it cannot recover; 0 = never
}

// event is something that happens at a time.
type fleetEvent struct {
	at     time.Duration
	serial uint64
	do     func()
}
type events []fleetEvent

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(fleetEvent)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	old[len(old)-1] = fleetEvent{}
	*e = old[:len(old)-1]
	return x
}

func newFleet(p fleetPlan, api *fleetAPI) *fleet {
	f := &fleet{fleetPlan: p, api: api, random: rand.New(rand.NewPCG(p.seed, 1)), base: time.Unix(1_790_000_000, 0),
		jobs: map[string]*fleetJob{}, busy: map[int]*fleetJob{}, resting: map[int][]int{}, members: make([][]int, p.groups), backlog: make([][]*fleetJob, p.groups)}
	f.all = make([]fleetAgent, p.agents)
	for i := range f.all {
		a := &f.all[i]
		name := fmt.Sprint("agent-", i)
		a.group, a.free, a.rivalry.agent = i%p.groups, p.drivers, name
		a.queue = newQueue(queueLimit)
		a.queue.favour = func(l lane) uint64 { return favour(name, l) }
		a.prefix = 14695981039346656037
		for n := range len(name) {
			a.prefix = (a.prefix ^ uint64(name[n])) * fnvPrime
		}
		a.prefix *= fnvPrime
		f.members[a.group] = append(f.members[a.group], i)
	}
	return f
}

// at has something happen.
func (f *fleet) at(when time.Duration, do func()) {
	f.serial++
	heap.Push(&f.clock, fleetEvent{max(when, f.now), f.serial, do})
}

// A server that is a minute behind does not recover: an agent that hears of a
// claim so late has sent its own long before. Neither does a fleet whose claims
// stay behind the jobs that come, by those of a quarter of a minute.
const (
	drownedAfter = time.Minute
	mostBehind   = 15 * time.Second
)

// run lets things happen until nothing is left to happen, or the server has
// drowned.
func (f *fleet) run() {
	for len(f.clock) > 0 && f.drowned == 0 {
		e := heap.Pop(&f.clock).(fleetEvent)
		f.now = e.at
		e.do()
		behind := f.perDay > 0 && float64(f.posted-f.taken) > f.perDay*mostBehind.Hours()/24 && len(f.backlog[0]) == 0
		if behind || max(f.api.cpu, f.api.line, f.api.etcd)-f.now > drownedAfter {
			f.drowned = f.now
		}
	}
}

// time is the time for a queue.
func (f *fleet) time() time.Time { return f.base.Add(f.now) }

// exp is a random duration with that average.
func (f *fleet) exp(mean time.Duration) time.Duration {
	return time.Duration(f.random.ExpFloat64() * float64(mean))
}

// posts has jobs come at random times until the end.
func (f *fleet) posts(until time.Duration) {
	if f.perDay == 0 {
		return
	}
	gap := time.Duration(float64(24*time.Hour) / f.perDay)
	var next func()
	next = func() {
		f.post(f.random.IntN(f.repositories), nil)
		if wait := f.exp(gap); f.now+wait < until {
			f.at(f.now+wait, next)
		}
	}
	f.at(f.exp(gap), next)
}

// pour has posters post jobs as fast as they can.
func (f *fleet) pour() {
	left := f.fleetPlan.jobs
	for range f.closed {
		var next func()
		next = func() {
			if left == 0 {
				return
			}
			left--
			f.post(f.posted%f.repositories, func(answered time.Duration) { f.at(answered, next) })
		}
		f.at(0, next)
	}
}

// newJob makes a job that the API has not seen yet.
func (f *fleet) newJob(repo int) *fleetJob {
	f.posted++
	j := &fleetJob{uid: fmt.Sprint("uid-", f.posted), key: key{"fleet", fmt.Sprint("job-", f.posted)}, repo: repo, group: repo % f.groups, owner: -1}
	f.jobs[j.key.Name] = j
	return j
}

func (j *fleetJob) lane() lane { return lane{"fleet", fmt.Sprint("repo-", j.repo)} }

// post makes a job of a repository. As on Grafana there is one live pull of a
// repository; only the posters of a benchmark, which name their jobs
// themselves, make more.
func (f *fleet) post(repo int, then func(answered time.Duration)) {
	if f.busy[repo] != nil && then == nil {
		f.refused++
		return
	}
	j := f.newJob(repo)
	if f.busy[repo] == nil {
		f.busy[repo] = j
	}
	acts, answered := f.api.write(f.now, "POST jobs", f.api.Post)
	f.at(acts, func() {
		j.posted = f.now
		j.seenFrom, j.seenTil = f.tell(j.group)
		f.at(j.seenFrom, func() { f.contend(j) })
	})
	if then != nil {
		then(answered)
	}
}

// tell publishes an event about a job of a group to its watches, and
// tellRepository one about a Repository.
func (f *fleet) tell(group int) (first, last time.Duration) {
	if f.reach == byNamespace {
		matching := len(f.members[group])
		return f.api.publish(f.now, matching, 0, f.agents-matching, f.api.EventBytes)
	}
	return f.api.publish(f.now, f.agents, 0, 0, f.api.EventBytes)
}

func (f *fleet) tellRepository(group int) {
	matching := len(f.members[group])
	filtered, foreign := f.agents-matching, 0
	if f.reach == byNamespace {
		filtered, foreign = 0, filtered
	}
	f.api.publish(f.now, matching, filtered, foreign, repositorySize*f.api.EventBytes)
}

// horizon is how far ahead contend looks at first: few agents would act so
// early, and the first of them takes the job as a rule.
const horizon = 300 * time.Millisecond

// contend works out when each agent of the group would act on a new job, and
// wakes them in that order.
func (f *fleet) contend(j *fleetJob) {
	j.waiting = f.turns(j, 0, horizon)
	j.beyond = true
	f.wakeNext(j)
}

// turns returns the agents whose hesitation is at least from and below to.
func (f *fleet) turns(j *fleetJob, from, to time.Duration) turns {
	var out turns
	spread := float64(j.seenTil - j.seenFrom)
	for _, i := range f.members[j.group] {
		a := &f.all[i]
		wait := time.Duration(0)
		if a.free > 0 && !a.queue.ready(f.time()) {
			if from == 0 && !a.earlier(j.uid, to) {
				continue
			}
			wait = a.rivalry.hesitation(j.uid)
		}
		if wait >= from && (to == 0 || wait < to) {
			out = append(out, turnAt{j.seenFrom + time.Duration(spread*f.random.Float64()) + wait, i})
		}
	}
	heap.Init(&out)
	return out
}

// earlier is hesitation(uid) < limit, without the logarithm and with the half of
// the hash that is the agent's own kept: it is asked ten thousand times a job.
func (a *fleetAgent) earlier(uid string, limit time.Duration) bool {
	w := a.rivalry.window
	if w == 0 || limit == 0 {
		return true
	}
	if w != a.boundOf {
		a.boundOf = w
		a.bound = math.Expm1(float64(limit)/float64(w)*math.Log(rivals)) / (rivals - 1)
	}
	h := a.prefix
	for n := range len(uid) {
		h = (h ^ uint64(uid[n])) * fnvPrime
	}
	return float64(mix(h*fnvPrime)>>11)/(1<<53) < a.bound
}

const fnvPrime = 1099511628211

// mix is the second half of hashOf.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// wakeNext wakes the agent that would act next, unless it would see the claim.
func (f *fleet) wakeNext(j *fleetJob) {
	if len(j.waiting) == 0 && j.beyond && j.claimed == 0 {
		j.waiting, j.beyond = f.turns(j, horizon, 0), false
	}
	if len(j.waiting) == 0 || j.claimed > 0 && j.waiting[0].at >= j.seen {
		j.waiting, j.beyond = nil, false
		return
	}
	f.at(j.waiting[0].at, func() {
		if len(j.waiting) == 0 {
			return
		}
		next := heap.Pop(&j.waiting).(turnAt)
		if a := &f.all[next.agent]; !f.knows(j) {
			a.queue.add(j.key, j.lane(), false, unranked)
			if s := a.queue.slots[j.key]; s != nil && s.place == waiting {
				s.hesitated = true
			}
			f.serve(next.agent)
		}
		f.wakeNext(j)
	})
}

// knows says whether the pictures of all agents show that a job is taken.
func (f *fleet) knows(j *fleetJob) bool { return j.claimed > 0 && f.now >= j.seen }

// serve has the free drivers of an agent take names.
func (f *fleet) serve(i int) {
	a := &f.all[i]
	for a.free > 0 {
		k, _, ok := a.queue.next(f.time())
		if !ok {
			if f.refill(i) {
				continue
			}
			break
		}
		a.free--
		f.look(i, f.jobs[k.Name])
	}
	if due, ok := a.queue.due(); ok && a.free > 0 {
		if at := due.Sub(f.base); a.wake <= f.now || at < a.wake {
			a.wake = at
			f.at(at, func() { f.serve(i) })
		}
	}
}

// back gives a name back and goes on.
func (f *fleet) back(i int, j *fleetJob, v verdict) {
	a := &f.all[i]
	a.queue.done(j.key, f.time(), v)
	a.free++
	f.serve(i)
}

// look is what a driver does with a name: see driver.go.
func (f *fleet) look(i int, j *fleetJob) {
	a := &f.all[i]
	if f.knows(j) {
		f.back(i, j, verdict{})
		return
	}
	if other := f.busy[j.repo]; other != nil && other != j && f.knows(other) && other.owner != i && other.deleted == 0 {
		f.resting[j.repo] = append(f.resting[j.repo], i)
		f.back(i, j, verdict{again: true, rest: DefaultInterval})
		return
	}
	if s := a.queue.slots[j.key]; !s.hesitated && !a.queue.ready(f.time()) {
		if wait := a.rivalry.hesitation(j.uid); wait > 0 {
			f.back(i, j, verdict{again: true, bar: wait, hesitate: true})
			return
		}
	}
	acts, answered := f.api.read(f.now, "GET jobs")
	f.at(acts, func() {
		taken := j.claimed > 0
		f.at(answered+f.think, func() {
			if taken {
				f.back(i, j, verdict{calm: true})
				return
			}
			f.claim(i, j)
		})
	})
}

// claim is claim.go.
func (f *fleet) claim(i int, j *fleetJob) {
	a := &f.all[i]
	sent := f.now
	acts, answered := f.api.write(f.now, "PUT jobs", f.api.Put)
	f.at(acts, func() {
		if j.claimed > 0 {
			f.api.requests["PUT jobs"]--
			f.api.requests["PUT jobs Conflict"]++
			f.lost++
			f.at(answered, func() {
				a.rivalry.lose(f.now - sent)
				_, again := f.api.read(f.now, "GET jobs")
				f.at(again, func() { f.back(i, j, verdict{}) })
			})
			return
		}
		j.claimed, j.owner = f.now, i
		first := f.busy[j.repo]
		if first == nil || first.claimed == 0 || first.deleted > 0 {
			f.busy[j.repo] = j
		}
		_, j.seen = f.tell(j.group)
		f.latencies = append(f.latencies, j.claimed-j.posted)
		f.taken++
		f.at(answered+f.think, func() {
			a.rivalry.win()
			if first != nil && first != j && first.claimed > 0 && first.deleted == 0 && first.owner != i {
				f.yield(i, j, first)
				return
			}
			f.run1(i, j)
		})
	})
}

// yield gives a job back whose repository another agent had claimed before.
func (f *fleet) yield(i int, j, first *fleetJob) {
	f.yields++
	acts, answered := f.api.write(f.now, "PUT jobs", f.api.Put)
	f.at(acts, func() {
		j.claimed, j.owner = 0, -1
		f.tell(j.group)
		f.at(answered, func() {
			rest := time.Duration(f.random.Int64N(int64(giveWay)))
			f.resting[j.repo] = append(f.resting[j.repo], i)
			f.back(i, j, verdict{again: true, bar: rest, rest: rest})
		})
	})
}

// run1 does a job and ends it.
func (f *fleet) run1(i int, j *fleetJob) {
	work := time.Duration(0)
	if f.work > 0 {
		work = f.exp(f.work)
	}
	end := f.now + work
	t := terms{expiry: DefaultExpiry, renew: DefaultRenew}
	for at := f.now + t.renew; at < end; at += t.renew {
		f.at(at, func() {
			f.api.read(f.now, "GET jobs")
			f.api.write(f.now, "PUT jobs", f.api.Put)
			f.tell(j.group)
		})
	}
	for n := range f.patches {
		f.at(f.now+work*time.Duration(n)/time.Duration(max(f.patches-1, 1)), func() {
			f.api.write(f.now, "PATCH repositories/status", f.api.Put)
			f.tellRepository(j.group)
		})
	}
	f.at(end, func() {
		_, answered := f.api.write(f.now+f.think, "POST historicjobs", f.api.Post)
		f.at(answered, func() {
			acts, answered := f.api.write(f.now, "DELETE jobs", f.api.Delete)
			f.at(acts, func() { f.remove(j) })
			f.at(answered+f.think, func() { f.back(i, j, verdict{calm: true}) })
		})
	})
}

// remove takes a job out of the API.
func (f *fleet) remove(j *fleetJob) {
	j.deleted = f.now
	f.done++
	f.ended = f.now
	if f.busy[j.repo] == j {
		delete(f.busy, j.repo)
	}
	_, j.forgot = f.tell(j.group)
	resting := f.resting[j.repo]
	delete(f.resting, j.repo)
	f.at(j.forgot, func() {
		for _, i := range resting {
			f.all[i].queue.free(j.lane())
			f.serve(i)
		}
	})
}

// Names of a backlog that an agent takes into its queue at a time: those that it
// favours, and the oldest, which it serves now and then.
const (
	refillFavoured = 24
	refillOldest   = 8
)

// refill brings names of the backlog into an empty queue. A real agent has all of
// them there; ten thousand agents would not fit into one memory. So the best
// ones by each of the two orders of the queue are brought, and again when they
// are used up.
func (f *fleet) refill(i int) bool {
	a := &f.all[i]
	if a.refills < 0 {
		return false
	}
	a.refills++
	open := f.backlog[a.group]
	type ranked struct {
		favour uint64
		job    *fleetJob
	}
	var best []ranked
	added := 0
	for _, j := range open {
		if j.claimed > 0 && f.now >= j.seen {
			continue
		}
		if added < refillOldest {
			if a.queue.slots[j.key] == nil {
				a.queue.add(j.key, j.lane(), false, unranked)
				added++
			}
			continue
		}
		r := ranked{a.queue.favour(j.lane()), j}
		if len(best) == refillFavoured && r.favour <= best[len(best)-1].favour {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, r, func(x, y ranked) int {
			if x.favour >= y.favour {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, r)
		best = best[:min(len(best), refillFavoured)]
	}
	for _, r := range best {
		if a.queue.slots[r.job.key] == nil {
			a.queue.add(r.job.key, r.job.lane(), false, unranked)
			added++
		}
	}
	if added == 0 {
		a.refills = -1
	}
	return added > 0
}

// stack gives the fleet a backlog that is there when its agents come, each at
// its time.
func (f *fleet) stack(n int, comes func(agent int) time.Duration) {
	for range n {
		repo := f.random.IntN(f.repositories)
		for f.busy[repo] != nil {
			repo = f.random.IntN(f.repositories)
		}
		j := f.newJob(repo)
		f.busy[repo] = j
		f.backlog[j.group] = append(f.backlog[j.group], j)
	}
	for i := range f.all {
		f.at(comes(i), func() { f.serve(i) })
	}
}
