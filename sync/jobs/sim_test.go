package jobs

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/jobs/queue"
	"limpet/sync/testenv/suite"
)

var (
	simSeed  = flag.Uint64("seed", 1, "first seed of TestSimulation")
	simKeep  = flag.Bool("keep-going", false, "go on after a seed that broke the law")
	simSeeds = flag.Int("seeds", suite.Count(simDefault, 40_000), "how many seeds TestSimulation runs")
)

// TestSimulation lets many agents live in many worlds, each made by one seed,
// and holds every write, every run and the end against the laws of simOracle.
func TestSimulation(t *testing.T) {
	began := time.Now()
	var sums simSums
	if n := runtime.GOMAXPROCS(0); n > 1 && *simSeeds >= 100*n {
		simulateApart(t, n, &sums)
	} else {
		simulateHere(t, &sums)
	}
	if *simSumsFile != "" {
		data, err := json.Marshal(sums)
		if err == nil {
			err = os.WriteFile(*simSumsFile, data, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("fault: %d seeds in %s\n%s", sums.Counts["worlds"], time.Since(began).Round(time.Millisecond), &sums)
}

// simulateHere runs the seeds one after the other.
func simulateHere(t *testing.T, sums *simSums) {
	defer deepStack()()
	for seed := *simSeed; seed < *simSeed+uint64(*simSeeds) && (*simKeep || !t.Failed()); seed++ {
		stuck := time.AfterFunc(time.Minute, func() {
			panic(fmt.Sprintf("seed %d gets stuck; repeat it with\n\tgo test ./sync/jobs -run TestSimulation -seed=%d -seeds=1", seed, seed))
		})
		w := simulate(t, seed)
		stuck.Stop()
		sums.add(w)
		if len(w.oracle.broken) > 0 {
			t.Errorf("seed %d breaks the law; repeat it with\n\tgo test ./sync/jobs -run TestSimulation -seed=%d -seeds=1\n%s", seed, seed, w.story())
		}
	}
}

// deepStack parks a goroutine with a deep stack. The runtime begins each stack as
// large as stacks are on average, and a seed begins hundreds of them: to let each
// grow from 2 KiB costs a seventh of its time. The function that it returns ends it.
func deepStack() (end func()) {
	park, done := make(chan struct{}), make(chan struct{})
	var down func(n int) byte
	down = func(n int) byte {
		var frame [4096]byte
		if n == 0 {
			<-park
		} else {
			frame[n] = down(n - 1)
		}
		return frame[n]
	}
	go func() { defer close(done); down(127) }()
	return func() { close(park); <-done }
}

// TestSimulationRepeats: one seed tells one story, however often it is told.
func TestSimulationRepeats(t *testing.T) {
	t.Parallel()
	for seed := *simSeed; seed < *simSeed+uint64(min(max(*simSeeds/20, 20), 1000)); seed++ {
		first, again := simulate(t, seed), simulate(t, seed)
		if first.print() != again.print() {
			t.Errorf("seed %d told two stories", seed)
		}
	}
}

// simulate runs the world of one seed.
func simulate(t *testing.T, seed uint64) *simWorld { return simulateWith(t, seed, nil) }

// simulateWith changes every process before it begins.
func simulateWith(t *testing.T, seed uint64, change func(*simProcess)) (w *simWorld) {
	synctest.Test(t, func(t *testing.T) {
		var deeds []deed
		w, deeds = newSimWorld(seed)
		w.change = change
		w.run(deeds)
	})
	return w
}

// patience is how long after the calm a job may take to end: the claim of a dead
// owner has to expire and to be watched, then come the rest before its next
// attempt, one interval, and all the work there is.
const simPatience = 20 * time.Minute

func (w *simWorld) run(deeds []deed) {
	ctx, cancel := context.WithCancel(context.Background())
	for _, g := range w.grafanas {
		go g.run(ctx)
		go g.reap(ctx)
	}
	for _, d := range deeds {
		<-time.After(time.Until(w.start.Add(d.at)))
		synctest.Wait()
		d.do()
	}
	<-time.After(time.Until(w.calm) + 101*time.Second) // every host is up again
	for end := w.calm.Add(simPatience); time.Now().Before(end) && !w.idle(); {
		<-time.After(7 * time.Second)
	}
	w.waited = time.Since(w.calm)
	w.mu.Lock()
	lives := slices.Clone(w.processes)
	w.mu.Unlock()
	cancel()
	w.over.Store(true)
	for _, p := range lives {
		p.stop()
	}
	for _, p := range lives {
		if err := <-p.done; err != nil && !p.dead.Load() {
			w.oracle.breach("", "%s: %v", p.name, err)
		}
		if live := p.agent.Snapshot().Running; len(live) > 0 {
			w.oracle.breach(live[0].UID, "%s still works on it", p.name)
		}
	}
	<-time.After(time.Minute) // what is still under way arrives
	w.oracle.last(w)
}

// idle says that nothing is left to do.
func (w *simWorld) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) > 0 {
		return false
	}
	for _, h := range w.hosts {
		h.disk.mu.Lock()
		n := len(h.disk.claims)
		h.disk.mu.Unlock()
		if h.gone.Load() {
			continue
		}
		if p := h.life.Load(); n > 0 || p.dead.Load() || p.agent.waiting() > 0 {
			return false
		}
	}
	return true
}

func (w *simWorld) names() []queue.Key { return slices.SortedFunc(maps.Keys(w.jobs), byName) }
