package jobs

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A fleet is many agents on one modelled API: a simulation of events. The queue,
// the order in it, the order of the agents, the head starts, the terms of the lease
// and the backoff are those of the room; workers, informers and connections are
// numbers. The agents of a group have one picture of each other, that of the last
// one to hear. An agent that learns of a job but would not act before it sees the
// claim of another is not woken: its share of the traffic is computed.

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
	name    string
	free    int // drivers
	rivalry *rivalry
	alone   mate // itself, while nobody knows it
	queue   *queue
	refills int
	wake    time.Duration // when it looks at its queue again by itself
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
	jobs      map[string]*fleetJob          // by name
	busy      map[int]*fleetJob             // by repository; the one that is claimed, if any is
	resting   map[int][]int                 // agents that let a repository rest, by repository
	crews     []*crew                       // by group
	turns     map[int]map[int]time.Duration // when agents may claim at a repository that they leave to others, by repository
	backlog   [][]*fleetJob                 // by group; jobs that were there before the agents
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
		jobs: map[string]*fleetJob{}, busy: map[int]*fleetJob{}, resting: map[int][]int{}, turns: map[int]map[int]time.Duration{}, members: make([][]int, p.groups), backlog: make([][]*fleetJob, p.groups)}
	for range p.groups {
		c := newCrew("")
		delete(c.mates, "")
		f.crews = append(f.crews, c)
	}
	f.all = make([]fleetAgent, p.agents)
	for i := range f.all {
		a := &f.all[i]
		name := fmt.Sprint("agent-", i)
		a.group, a.name, a.free, a.rivalry, a.alone = i%p.groups, name, p.drivers, newRivalry(), mate{name: name}
		a.queue = newQueue(queueLimit)
		a.queue.favour = func(l lane) uint64 { return favour(name, l) }
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

// contend works out when each agent of the group would act on a new job, and
// wakes them in that order.
func (f *fleet) contend(j *fleetJob) {
	spread := float64(j.seenTil - j.seenFrom)
	for i, wait := range f.waits(j) {
		j.waiting = append(j.waiting, turnAt{j.seenFrom + time.Duration(spread*f.random.Float64()) + wait, f.members[j.group][i]})
	}
	heap.Init(&j.waiting)
	f.wakeNext(j)
}

// waits returns how long each member of a group leaves a job to others: what
// crew.hesitation says, for all of them at once.
func (f *fleet) waits(j *fleetJob) []time.Duration {
	c, now, l := f.crews[j.group], f.time(), j.lane()
	type rank struct {
		class  class
		favour uint64
	}
	compare := func(x, y rank) int {
		return cmp.Or(cmp.Compare(x.class, y.class), -cmp.Compare(x.favour, y.favour))
	}
	var known []rank
	own := make([]rank, len(f.members[j.group]))
	head := f.all[f.members[j.group][0]].rivalry.head()
	for n, i := range f.members[j.group] {
		a := &f.all[i]
		by := a.queue.favour(l)
		if m := c.mates[a.name]; m != nil {
			known = append(known, rank{m.class(now, head), by})
		}
		own[n] = rank{f.mate(i, l).class(now, head), by}
	}
	slices.SortFunc(known, compare)
	out := make([]time.Duration, len(own))
	for n, i := range f.members[j.group] {
		k, _ := slices.BinarySearchFunc(known, own[n], compare)
		out[n] = f.behind(i, k, l)
	}
	return out
}

// mate is how an agent sees itself when it is asked whether it would claim.
func (f *fleet) mate(i int, l lane) *mate {
	a := &f.all[i]
	if m := f.crews[a.group].mates[a.name]; m != nil {
		return m.atWork()
	}
	self := a.alone.atWork()
	self.shy(l, f.time())
	return self
}

// hesitation is crew.hesitation.
func (f *fleet) hesitation(i int, j *fleetJob) time.Duration {
	if turn, ok := f.turns[j.repo][i]; ok {
		return turn - f.now
	}
	k, self, head, now := 0, f.mate(i, j.lane()), f.all[i].rivalry.head(), f.time()
	for _, m := range f.crews[j.group].mates {
		if m.name != self.name && m.before(self, j.lane(), now, head) {
			k++
		}
	}
	wait := f.behind(i, k, j.lane())
	f.turn(i, j, f.now+wait)
	return wait
}

// behind is how long an agent waits that has k others before it.
func (f *fleet) behind(i, k int, l lane) time.Duration {
	a := &f.all[i]
	wait := behind(k, a.rivalry.head())
	if wait > 0 && f.crews[a.group].mates[a.name] == nil {
		wait += a.alone.apart(l, f.time(), a.rivalry.head())
	}
	return wait
}

// turn notes when an agent may claim at a repository.
func (f *fleet) turn(i int, j *fleetJob, at time.Duration) {
	if f.turns[j.repo] == nil {
		f.turns[j.repo] = map[int]time.Duration{}
	}
	f.turns[j.repo][i] = at
}

// wakeNext wakes the agent that would act next, unless it would see the claim.
func (f *fleet) wakeNext(j *fleetJob) {
	if len(j.waiting) == 0 || j.claimed > 0 && j.waiting[0].at >= j.seen {
		j.waiting = nil
		return
	}
	f.at(j.waiting[0].at, func() {
		if len(j.waiting) == 0 {
			return
		}
		next := heap.Pop(&j.waiting).(turnAt)
		if a := &f.all[next.agent]; !f.knows(j) {
			a.queue.add(j.key, j.lane(), false, unranked)
			f.turn(next.agent, j, f.now)
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
	if f.knows(j) {
		f.back(i, j, verdict{})
		return
	}
	if other := f.busy[j.repo]; other != nil && other != j && f.knows(other) && other.owner != i && other.deleted == 0 {
		f.resting[j.repo] = append(f.resting[j.repo], i)
		f.back(i, j, verdict{again: true, rest: DefaultInterval})
		return
	}
	if wait := f.hesitation(i, j); wait > 0 {
		f.back(i, j, verdict{again: true, rest: wait})
		return
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
				a.rivalry.lose(f.now-sent, true)
				if a.alone.seats == 0 {
					a.alone.miss(f.time())
				}
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
		f.at(j.seen, func() {
			delete(f.turns, j.repo)
			a.alone.seats = 1
			f.crews[j.group].begin(j.uid, a.name, j.lane(), true, f.time(), a.rivalry.head())
		})
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
	f.all[i].rivalry.early()
	acts, answered := f.api.write(f.now, "PUT jobs", f.api.Put)
	f.at(acts, func() {
		j.claimed, j.owner = 0, -1
		_, seen := f.tell(j.group)
		f.at(seen, func() { f.crews[j.group].end(j.uid, j.lane(), false, f.time()) })
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
		f.crews[j.group].end(j.uid, j.lane(), true, f.time())
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
