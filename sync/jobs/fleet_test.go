package jobs

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"limpet/sync/jobs/lease"
	"limpet/sync/jobs/queue"
)

// A fleet is many agents on one modelled API: a simulation of events. The queue, the
// order in it, the claim delay and the terms of the lease are those of the package;
// workers, informers and connections are numbers. The agents of a group know the same
// of each other, as of the last one to hear.

var (
	fullFleet = flag.Bool("fleet", false, "simulate the whole fleet and print its figures")
	fleetSeed = flag.Uint64("fleet.seed", 1, "seed of the simulated fleet")
)

// costs of an API server, measured on the API machinery: testdata/fleet.json.
type costs struct {
	Get, Put, Post, Delete            time.Duration // of one call, for its client
	GetCPU, WriteCPU                  time.Duration // of one call, for the server
	EventCPU, FilteredCPU, ForeignCPU time.Duration // of one event for one watch: received, of another selector, of another namespace
	EventBytes                        float64
}

// The assumed server: 16 cores of the kind that the costs were measured on, an etcd
// on local SSDs with 3,000 writes a second, 10 Gbit/s, 5 ms from its agents. The size
// of a Repository is about twice that of a Job.
const (
	serverCores    = 16
	serverWrites   = 3000
	serverWire     = 1.25e9
	serverDistance = 5 * time.Millisecond
	repositorySize = 2.0
)

// fleetAPI is an API server as its clients see it: a call waits for a processor, a
// write also for etcd, an event for the processors that encode and send it and for
// the network. Each of the three serves one after the other at a known rate, so that
// overload shows as waiting.
type fleetAPI struct {
	costs
	cpu, etcd, line      time.Duration // when the queues will have done what they have
	cpuCalls, cpuEvents  time.Duration
	sent                 float64 // bytes of events
	events               int
	gets, puts, conflict int
}

func take(queue *time.Duration, now, d time.Duration) time.Duration {
	*queue = max(*queue, now) + d
	return *queue
}

// read and write return when the server acts on a call that is sent now, and
// when its client has the answer.
func (a *fleetAPI) read(now time.Duration) (acts, answered time.Duration) {
	a.gets++
	a.cpuCalls += a.GetCPU
	acts = take(&a.cpu, now+serverDistance, a.GetCPU/serverCores) + a.Get/2
	return acts, acts + a.Get/2 + serverDistance
}

func (a *fleetAPI) write(now, took time.Duration) (acts, answered time.Duration) {
	a.puts++
	a.cpuCalls += a.WriteCPU
	ready := take(&a.cpu, now+serverDistance, a.WriteCPU/serverCores)
	acts = take(&a.etcd, ready, time.Second/serverWrites) + took/2
	return acts, acts + took/2 + serverDistance
}

// publish sends an event of so many bytes to the watches that match it, and returns
// when the first and when the last agent has it.
func (a *fleetAPI) publish(now time.Duration, matching, filtered, foreign int, size float64) (first, last time.Duration) {
	cost := time.Duration(matching)*a.EventCPU + time.Duration(filtered)*a.FilteredCPU + time.Duration(foreign)*a.ForeignCPU
	a.events++
	a.cpuEvents += cost
	bytes := size * float64(matching)
	a.sent += bytes
	last = max(take(&a.cpu, now, cost/serverCores), take(&a.line, now, time.Duration(bytes/serverWire*float64(time.Second))))
	return now + serverDistance, last + serverDistance
}

// fleetPlan is what is simulated. Each job is a pull with two writes of the
// Repository's status.
type fleetPlan struct {
	agents, repositories, groups int
	namespaced                   bool // each group has a namespace of its own, else a selector
	perDay                       float64
	last                         time.Duration
}

type fleetJob struct {
	key                   queue.Key
	repo, group, owner    int
	posted, claimed, seen time.Duration // seen = the claim, by the last agent; 0 = not yet
	waiting               []fleetTurn   // agents by the time when they would act, the first first
}

type fleetTurn struct {
	at    time.Duration
	agent int
}

type fleetAgent struct {
	group int
	name  string
	free  int // drivers
	delay *claimDelay
	queue *queue.Queue
}

type fleet struct {
	fleetPlan
	api    *fleetAPI
	random *rand.Rand
	base   time.Time // of the times that the queues are told
	now    time.Duration
	clock  fleetEvents
	serial uint64

	members   [][]int // agents by group
	all       []fleetAgent
	jobs      map[string]*fleetJob // by name
	busy      map[int]*fleetJob    // by repository
	known     []map[string]bool    // agents that have claimed, by group
	posted    int
	done      int
	latencies []time.Duration
	ended     time.Duration
	drowned   time.Duration // when the server was so late that it cannot recover; 0 = never
}

// fleetEvents are what happens, by time.
type fleetEvents []fleetEvent
type fleetEvent struct {
	at     time.Duration
	serial uint64
	do     func()
}

func (e fleetEvents) Len() int { return len(e) }
func (e fleetEvents) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].serial, e[j].serial)) < 0
}
func (e fleetEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *fleetEvents) Push(x any)   { *e = append(*e, x.(fleetEvent)) }
func (e *fleetEvents) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

func newFleet(p fleetPlan, c costs) *fleet {
	f := &fleet{
		fleetPlan: p, api: &fleetAPI{costs: c}, random: rand.New(rand.NewPCG(*fleetSeed, 1)), base: time.Unix(1_790_000_000, 0),
		jobs: map[string]*fleetJob{}, busy: map[int]*fleetJob{}, members: make([][]int, p.groups),
	}
	for range p.groups {
		f.known = append(f.known, map[string]bool{})
	}
	for i := range p.agents {
		name := fmt.Sprint("agent-", i)
		f.all = append(f.all, fleetAgent{group: i % p.groups, name: name, free: DefaultDrivers, delay: newClaimDelay(name),
			queue: queue.New(queue.Limit, queue.Reserve, func(r queue.RepoKey) uint64 { return queue.Favour(name, r) })})
		f.members[i%p.groups] = append(f.members[i%p.groups], i)
	}
	return f
}

func (f *fleet) at(when time.Duration, do func()) {
	f.serial++
	heap.Push(&f.clock, fleetEvent{max(when, f.now), f.serial, do})
}

// run posts jobs at random times and lets things happen until nothing is left to
// happen. A server that is a minute behind does not recover: an agent that hears of a
// claim so late has sent its own long before.
func (f *fleet) run() {
	gap := float64(24*time.Hour) / f.perDay
	var next func()
	next = func() {
		f.post(f.random.IntN(f.repositories))
		if wait := time.Duration(f.random.ExpFloat64() * gap); f.now+wait < f.last {
			f.at(f.now+wait, next)
		}
	}
	f.at(0, next)
	for len(f.clock) > 0 && f.drowned == 0 {
		e := heap.Pop(&f.clock).(fleetEvent)
		f.now = e.at
		e.do()
		if max(f.api.cpu, f.api.line, f.api.etcd)-f.now > time.Minute {
			f.drowned = f.now
		}
	}
}

func (j *fleetJob) repoKey() queue.RepoKey { return repoKey("fleet", fmt.Sprint("repo-", j.repo)) }

// post makes a job of a repository, which has one live pull at most.
func (f *fleet) post(repo int) {
	if f.busy[repo] != nil {
		return
	}
	f.posted++
	j := &fleetJob{key: key("fleet", fmt.Sprint("job-", f.posted)), repo: repo, group: repo % f.groups, owner: -1}
	f.jobs[j.key.Name], f.busy[repo] = j, j
	acts, _ := f.api.write(f.now, f.api.Post)
	f.at(acts, func() {
		j.posted = f.now
		first, last := f.tell(j.group, 1)
		f.at(first, func() { f.contend(j, last-first) })
	})
}

// tell publishes an event about a job of a group, or of a Repository, to its watches.
func (f *fleet) tell(group int, size float64) (first, last time.Duration) {
	matching := len(f.members[group])
	switch others := f.agents - matching; {
	case f.namespaced:
		return f.api.publish(f.now, matching, 0, others, size*f.api.EventBytes)
	case size == 1: // a Job does not carry the labels of its Repository
		return f.api.publish(f.now, f.agents, 0, 0, size*f.api.EventBytes)
	default:
		return f.api.publish(f.now, matching, others, 0, size*f.api.EventBytes)
	}
}

// contend works out when each agent of the group would act on a new job, and wakes
// them in that order until the claim is seen.
func (f *fleet) contend(j *fleetJob, spread time.Duration) {
	r := j.repoKey()
	var before []uint64
	for name := range f.known[j.group] {
		before = append(before, queue.Favour(name, r))
	}
	slices.Sort(before)
	for _, i := range f.members[j.group] {
		at, found := slices.BinarySearch(before, queue.Favour(f.all[i].name, r))
		rank := len(before) - at
		if found {
			rank--
		}
		delay := f.all[i].delay.delay(rank, len(before), r, f.base.Add(f.now))
		j.waiting = append(j.waiting, fleetTurn{f.now + time.Duration(float64(spread)*f.random.Float64()) + delay, i})
	}
	slices.SortFunc(j.waiting, func(a, b fleetTurn) int { return cmp.Compare(a.at, b.at) })
	f.wakeNext(j)
}

func (f *fleet) wakeNext(j *fleetJob) {
	if len(j.waiting) == 0 || j.claimed > 0 && j.waiting[0].at >= j.seen {
		j.waiting = nil
		return
	}
	next := j.waiting[0]
	j.waiting = j.waiting[1:]
	f.at(next.at, func() {
		if a := &f.all[next.agent]; !f.taken(j) {
			a.queue.Add(f.base.Add(f.now), j.key, j.repoKey(), false, queue.Unranked)
			f.serve(next.agent)
		}
		f.wakeNext(j)
	})
}

// taken reports whether all agents have seen that a job is claimed.
func (f *fleet) taken(j *fleetJob) bool { return j.claimed > 0 && f.now >= j.seen }

// serve has the free drivers of an agent take keys.
func (f *fleet) serve(i int) {
	a := &f.all[i]
	for a.free > 0 {
		k, _, _, ok := a.queue.Next(f.base.Add(f.now), false)
		if !ok {
			return
		}
		a.free--
		j := f.jobs[k.Name]
		if f.taken(j) {
			f.back(i, j)
			continue
		}
		acts, answered := f.api.read(f.now)
		f.at(acts, func() {
			taken := j.claimed > 0
			f.at(answered, func() {
				if taken {
					f.back(i, j)
				} else {
					f.claim(i, j)
				}
			})
		})
	}
}

// back gives a key back and goes on.
func (f *fleet) back(i int, j *fleetJob) {
	a := &f.all[i]
	a.queue.Done(f.base.Add(f.now), j.key, queue.Result{})
	a.free++
	f.serve(i)
}

func (f *fleet) claim(i int, j *fleetJob) {
	a := &f.all[i]
	acts, answered := f.api.write(f.now, f.api.Put)
	f.at(acts, func() {
		if j.claimed > 0 {
			f.api.conflict++
			f.at(answered, func() {
				a.delay.lost(f.base.Add(f.now))
				_, again := f.api.read(f.now)
				f.at(again, func() { f.back(i, j) })
			})
			return
		}
		j.claimed, j.owner = f.now, i
		f.latencies = append(f.latencies, j.claimed-j.posted)
		_, j.seen = f.tell(j.group, 1)
		f.at(j.seen, func() { f.known[j.group][a.name] = true })
		f.at(answered, func() {
			a.delay.won()
			f.work(i, j)
		})
	})
}

// work does a job and ends it.
func (f *fleet) work(i int, j *fleetJob) {
	end := f.now + time.Duration(f.random.ExpFloat64()*float64(2*time.Second))
	terms := lease.Terms{Expiry: DefaultExpiry, Renew: DefaultRenew}
	for at := f.now + terms.Renew; at < end; at += terms.Renew {
		f.at(at, func() {
			f.api.read(f.now)
			f.api.write(f.now, f.api.Put)
			f.tell(j.group, 1)
		})
	}
	for _, at := range []time.Duration{f.now, end} {
		f.at(at, func() {
			f.api.write(f.now, f.api.Put)
			f.tell(j.group, repositorySize)
		})
	}
	f.at(end, func() {
		_, answered := f.api.write(f.now, f.api.Post)
		f.at(answered, func() {
			acts, answered := f.api.write(f.now, f.api.Delete)
			f.at(acts, func() {
				f.done, f.ended = f.done+1, f.now
				delete(f.busy, j.repo)
				f.tell(j.group, 1)
			})
			f.at(answered, func() { f.back(i, j) })
		})
	})
}

// TestFleet simulates an hour of a working fleet, for each way to divide it. Without
// -fleet it is a small one, and judged only.
func TestFleet(t *testing.T) {
	t.Parallel()
	var c costs
	data, err := os.ReadFile("testdata/fleet.json")
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		name       string
		groups     int
		namespaced bool
	}{
		{"everybody takes everything", 1, false},
		{"100 selectors", 100, false},
		{"1,000 selectors", 1000, false},
		{"100 namespaces", 100, true},
		{"1,000 namespaces", 1000, true},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := fleetPlan{agents: 200, repositories: 2000, groups: max(s.groups/50, 1), namespaced: s.namespaced, perDay: 1e6, last: 10 * time.Minute}
			if *fullFleet {
				p.agents, p.repositories, p.groups, p.last = 10_000, 100_000, s.groups, time.Hour
			}
			f := newFleet(p, c)
			half, doneBefore, lostBefore := p.last/2, 0, 0
			f.at(half, func() { doneBefore, lostBefore = f.done, f.api.conflict })
			f.run()
			if f.drowned > 0 {
				t.Logf("the server drowns after %s", f.drowned.Round(time.Second))
				if !*fullFleet {
					t.Error("drowned")
				}
				return
			}
			if f.done != f.posted || slices.ContainsFunc(f.all, func(a fleetAgent) bool { return a.free != DefaultDrivers }) {
				t.Errorf("%d of %d jobs are done, or a driver is not free at the end", f.done, f.posted)
			}
			slices.Sort(f.latencies)
			q := func(p float64) time.Duration {
				return f.latencies[int(p*float64(len(f.latencies)-1))].Round(time.Millisecond)
			}
			late := float64(f.api.conflict-lostBefore) / float64(f.done-doneBefore)
			seconds := f.ended.Seconds()
			t.Logf("%d jobs, %.2f requests and %.3f lost claims a job (%.3f in the second half), claim p50 %s p99 %s; from the server %.1f MB/s, %.1f kB/s to an agent; %.2f cores for calls, %.2f for watches",
				f.done, float64(f.api.gets+f.api.puts)/float64(f.done)-1, float64(f.api.conflict)/float64(f.done), late, q(0.5), q(0.99),
				f.api.sent/seconds/1e6, f.api.sent/seconds/float64(f.agents)/1e3, f.api.cpuCalls.Seconds()/seconds, f.api.cpuEvents.Seconds()/seconds)
			if !*fullFleet && late > 0.2 {
				t.Errorf("%.3f claims a job are lost by agents that know each other", late)
			}
		})
	}
}
