package jobs

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// measured is what TestAgentsShareTheWork (tui/cli) has shown of real agents on
// the real API machinery, on one machine with all of them.
type measured struct {
	Jobs, Repositories, Posters int
	Agents                      map[int]struct {
		Rate      float64 // jobs a second
		Requests  float64 // of the agents, for each job
		Conflicts float64 // for each job
	}
}

// TestFleetForetells compares the simulated fleet with real agents. The time
// that an agent itself takes for one step is fitted to the rate of one agent; all
// else is foretold. What is judged are the requests, within a quarter: real
// processes that share two processors wait for each other at random, which it
// knows nothing of.
func TestFleetForetells(t *testing.T) {
	t.Parallel()
	var real measured
	data, err := os.ReadFile("testdata/agents.json")
	if err == nil {
		err = json.Unmarshal(data, &real)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := readCosts(t)
	run := func(agents int, think time.Duration) *fleet {
		f := newFleet(fleetPlan{agents: agents, repositories: real.Repositories, groups: 1, drivers: DefaultDrivers, think: think,
			closed: real.Posters, jobs: real.Jobs, seed: *fleetSeed}, newFleetAPI(c, serverSize{cores: 1, writes: 10_000, wire: 1.25e9}))
		f.pour()
		f.run()
		f.judge(t)
		return f
	}
	rate := func(f *fleet) float64 { return float64(f.done) / f.ended.Seconds() }
	think := time.Duration(0)
	for step := 512 * time.Millisecond; step >= 250*time.Microsecond; step /= 2 {
		if rate(run(1, think+step)) > real.Agents[1].Rate {
			think += step
		}
	}
	for _, agents := range []int{1, 2, 4, 8} {
		f := run(agents, think)
		total := 0
		for kind, n := range f.api.requests {
			if kind != "POST jobs" {
				total += n
			}
		}
		is := real.Agents[agents]
		requests, conflicts := float64(total)/float64(f.done), float64(f.lost)/float64(f.done)
		t.Logf("%d agents, real and foretold: %.1f and %.1f jobs/s, %.2f and %.2f requests a job, %.3f and %.3f conflicts a job (think %s)",
			agents, is.Rate, rate(f), is.Requests, requests, is.Conflicts, conflicts, think)
		if agents > 1 && (requests > 1.25*is.Requests || requests < is.Requests/1.25) {
			t.Errorf("%d agents: %.2f requests a job foretold, %.2f measured", agents, requests, is.Requests)
		}
	}
}
