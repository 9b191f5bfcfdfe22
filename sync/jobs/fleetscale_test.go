package jobs

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	fullFleet = flag.Bool("fleet", false, "simulate the whole fleet and print its figures")
	fleetSeed = flag.Uint64("fleet.seed", 1, "seed of the simulated fleet")
)

// The fleet of README: 10,000 agents, 100,000 repositories, a million jobs a
// day. Each job is a pull with two writes of the Repository's status.
func plan(groups int, reach reach) fleetPlan {
	p := fleetPlan{agents: 10_000, repositories: 100_000, perDay: 1e6, groups: groups, reach: reach,
		work: 2 * time.Second, patches: 2, drivers: DefaultDrivers, think: time.Millisecond, seed: *fleetSeed}
	if !*fullFleet {
		p.agents, p.repositories, p.perDay, p.groups = 200, 2000, 1e6, max(groups/50, 1)
	}
	return p
}

// shares are the ways to divide a fleet that are compared.
var shares = []struct {
	name   string
	groups int
	reach  reach
}{
	{"everybody takes everything", 1, bySelector},
	{"100 selectors", 100, bySelector},
	{"1,000 selectors", 1000, bySelector},
	{"100 namespaces", 100, byNamespace},
	{"1,000 namespaces", 1000, byNamespace},
}

// TestFleet simulates an hour of a working fleet, and an hour's backlog, for each
// way to divide it. Without -fleet it is a small one, and judged only.
func TestFleet(t *testing.T) {
	t.Parallel()
	c := readCosts(t)
	for _, s := range shares {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(plan(s.groups, s.reach), newFleetAPI(c, large))
			last := 10 * time.Minute
			if *fullFleet {
				last = time.Hour
			}
			f.posts(last)
			known, before := 0, 0
			f.at(last/2, func() { known, before = f.lost, f.taken })
			f.run()
			f.judge(t)
			late := float64(f.lost-known) / float64(max(f.taken-before, 1))
			t.Logf("%s at work: %s; %.3f conflicts a job in the second half", last, f.figures(last), late)
		})
	}
}

// judge asks that every job was done once and nothing is held at the end.
func (f *fleet) judge(t *testing.T) {
	t.Helper()
	if f.drowned > 0 {
		if !*fullFleet {
			t.Errorf("the server drowned after %s", f.drowned)
		}
		return
	}
	if f.done != f.posted || f.api.requests["DELETE jobs"] != f.posted || f.api.requests["POST historicjobs"] != f.posted {
		t.Errorf("%d of %d jobs were done, %d removals, %d HistoricJobs", f.done, f.posted, f.api.requests["DELETE jobs"], f.api.requests["POST historicjobs"])
	}
	for i := range f.all {
		if a := &f.all[i]; a.free != f.drivers {
			t.Errorf("agent %d has %d of %d drivers free at the end", i, a.free, f.drivers)
		}
	}
}

// figures are what an operator asks, as text.
func (f *fleet) figures(last time.Duration) string {
	each := func(n int) float64 { return float64(n) / float64(max(f.done, 1)) }
	total := 0
	for kind, n := range f.api.requests {
		if kind != "POST jobs" {
			total += n
		}
	}
	slices.Sort(f.latencies)
	q := func(p float64) time.Duration {
		if len(f.latencies) == 0 {
			return 0
		}
		return f.latencies[min(int(p*float64(len(f.latencies))), len(f.latencies)-1)].Round(time.Millisecond)
	}
	seconds := last.Seconds()
	if f.drowned > 0 {
		return fmt.Sprintf("THE SERVER DROWNS after %s: %d of %d jobs done, %.2f requests and %.3f conflicts a job done, %d requests in all; until then %.1f GB from the server",
			f.drowned.Round(time.Second), f.done, f.posted, each(total), each(f.api.requests["PUT jobs Conflict"]), total, f.api.sent/1e9)
	}
	return fmt.Sprintf("%d jobs, %.2f requests and %.3f conflicts a job, claim p50 %s p99 %s; watches: %.0f events/s, %.1f MB/s from the server, %.1f kB/s to an agent; server: %.2f cores for calls, %.2f for watches of %.0f; %d yields, last job done at %s",
		f.done, each(total), each(f.api.requests["PUT jobs Conflict"]), q(0.5), q(0.99),
		float64(f.api.events)/seconds, f.api.sent/seconds/1e6, f.api.sent/seconds/float64(f.agents)/1e3,
		f.api.cpuCalls.Seconds()/seconds, f.api.cpuEvents.Seconds()/seconds, f.api.cores, f.yields, f.ended.Round(time.Second))
}

// TestFleetDrains simulates what an hour without the API leaves: the jobs of that
// hour are there when the API is back, and the agents come as they reconnect.
func TestFleetDrains(t *testing.T) {
	t.Parallel()
	c := readCosts(t)
	for _, s := range shares {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := plan(s.groups, s.reach)
			backlog := p.repositories * 41_667 / 100_000
			f := newFleet(p, newFleetAPI(c, large))
			r := rand.New(rand.NewPCG(p.seed, 2))
			f.stack(backlog, func(int) time.Duration { return reconnects(r, time.Hour) })
			f.run()
			f.judge(t)
			t.Logf("an hour's backlog: %s", f.figures(f.ended))
		})
	}
}

// The pauses of agents that do not reach their server: health.go of the room
// sync/api, each up to a tenth longer.
var pauses = []time.Duration{2 * time.Second, 18 * time.Second, 20 * time.Second}

// reconnects returns how long after the end of an outage an agent asks again.
func reconnects(r *rand.Rand, outage time.Duration) time.Duration {
	at := time.Duration(0)
	for n := 0; at < outage; n++ {
		step := pauses[min(n, len(pauses)-1)]
		at += step + time.Duration(r.Int64N(int64(step/10)))
	}
	return at - outage
}

// TestFleetComesBack works out what it costs that all agents lose the API at the
// same moment and come back: connections, and the pictures of all jobs and
// repositories that each of them asks for.
func TestFleetComesBack(t *testing.T) {
	t.Parallel()
	c := readCosts(t)
	for _, outage := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
		for _, s := range shares {
			p := plan(s.groups, s.reach)
			jobs := p.repositories * 41_667 / 100_000
			storm := c.comeBack(p, large, outage, jobs)
			t.Logf("after %s: %s: %s", outage, s.name, storm)
			if storm.arrived != p.agents {
				t.Errorf("%d of %d agents came back", storm.arrived, p.agents)
			}
		}
	}
}

// comeback is the return of a fleet.
type comeback struct {
	arrived int
	peak    int           // most agents in one second
	cpu     time.Duration // of the server, in all
	bytes   float64       // from the server, in all
	each    float64       // to one agent
	synced  time.Duration // until the last agent has its picture
	spread  time.Duration // of the arrivals
}

func (s comeback) String() string {
	return fmt.Sprintf("agents come within %s, at most %d in one second; %.0f s of processor, %.2f GB from the server, %.2f MB to each; the last picture is complete after %s",
		s.spread.Round(100*time.Millisecond), s.peak, s.cpu.Seconds(), s.bytes/1e9, s.each/1e6, s.synced.Round(100*time.Millisecond))
}

// comparedEvery is how often an agent reads all Repositories, on the average: the
// interval of the informer in the room sync/api and half of its jitter.
const comparedEvery = 630 * time.Second

// connections that an agent opens to come back: for calls, for watches.
const connections = 2

func (c costs) comeBack(p fleetPlan, m serverSize, outage time.Duration, jobs int) (s comeback) {
	r := rand.New(rand.NewPCG(p.seed, 3))
	api := newFleetAPI(c, m)
	arrivals := make([]time.Duration, p.agents)
	for i := range arrivals {
		arrivals[i] = reconnects(r, outage)
	}
	slices.Sort(arrivals)
	s.spread = arrivals[len(arrivals)-1] - arrivals[0]
	seen, repos, filtered := jobs, p.repositories/p.groups, p.repositories-p.repositories/p.groups
	if p.reach == byNamespace {
		seen, filtered = jobs/p.groups, 0
	}
	size := c.EventBytes * (float64(seen) + repositorySize*float64(repos))
	each := connections*c.Connect + time.Duration(seen+repos)*c.InitialCPU + time.Duration(filtered)*c.ListFilteredCPU
	seconds := map[int]int{}
	for _, at := range arrivals {
		s.arrived++
		seconds[int(at.Seconds())]++
		s.cpu += each
		s.bytes += size
		s.synced = max(s.synced, api.work(at, each), take(&api.line, at, time.Duration(size/api.wire*float64(time.Second))))
	}
	for _, n := range seconds {
		s.peak = max(s.peak, n)
	}
	s.each = size
	return s
}

// TestFleetLimits tells from the costs alone where the server ends. A pull makes
// three events of its job (made, claimed, removed) and two of its Repository, with
// six writes and one read.
func TestFleetLimits(t *testing.T) {
	t.Parallel()
	c := readCosts(t)
	var out []string
	for _, s := range shares {
		p := plan(s.groups, s.reach)
		agents := float64(p.agents)
		own := agents / float64(p.groups)
		jobs, others := agents, c.FilteredCPU // who hears of a job, and what a Repository costs that others do not hear of
		if s.reach == byNamespace {
			jobs, others = own, c.ForeignCPU
		}
		cpu := 3*(jobs*c.EventCPU.Seconds()+(agents-jobs)*c.ForeignCPU.Seconds()) + 2*(own*c.EventCPU.Seconds()+(agents-own)*others.Seconds()) +
			6*c.WriteCPU.Seconds() + c.GetCPU.Seconds()
		// The full list that each agent compares its picture with; live jobs are few.
		repos := float64(p.repositories / p.groups)
		lists := repos * c.ListCPU.Seconds()
		if s.reach == bySelector {
			lists += (float64(p.repositories) - repos) * c.ListFilteredCPU.Seconds()
		}
		standing := agents / comparedEvery.Seconds() * lists
		byCPU := max(large.cores-standing, 0) / cpu
		byWire := large.wire / (c.EventBytes * (3*jobs + 2*repositorySize*own))
		byEtcd := large.writes / 6
		least := min(byCPU, byWire, byEtcd)
		what := map[float64]string{byCPU: "processors", byWire: "network", byEtcd: "etcd"}[least]
		out = append(out, fmt.Sprintf("%s: %.0f jobs/s (%.1f million a day), then the %s; processors %.0f, network %.0f, etcd %.0f; %.2f cores for periodic lists",
			s.name, least, least*86400/1e6, what, byCPU, byWire, byEtcd, standing))
		if s.groups > 1 && least <= 0 {
			t.Errorf("%s: no jobs at all", s.name)
		}
	}
	t.Logf("most jobs that one server of %+v carries with %d agents:\n%s", large, plan(1, bySelector).agents, strings.Join(out, "\n"))
}
