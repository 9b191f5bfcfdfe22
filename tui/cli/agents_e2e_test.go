package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// TestAgentsShareTheWork runs no-op jobs through 1, 2, 4 and 8 agents on one API
// and counts what they ask of it: requests and conflicts for each job, and how
// the total rate compares with that of one agent. All processes share the
// machine, so the rates tell what more agents cost, not what they gain.
func TestAgentsShareTheWork(t *testing.T) {
	const (
		mostRequests  = 4.0 // for each job of an agent that is alone
		mostConflicts = 0.1 // for each claim, 8 agents that know each other
		leastTotal    = 0.7 // 8 agents over 1
	)
	counts := []int{1, 2, 4, 8}
	if !*figures {
		counts = []int{1, 4}
	}
	server := testenv.Start(t, testenv.Options{})
	y, flags := realYard(t, server)
	y.repositories(20)
	s := y.look()
	n, rounds := size(60, 600), size(1, 3)
	rate := map[int]float64{}
	for _, agents := range counts {
		t.Run(fmt.Sprint(agents, " agents"), func(t *testing.T) {
			for range agents {
				newHome(t, flags...).daemon(t, "--log-level", "warn")
			}
			y.drain(s, n/4, 8) // warm
			since := server.Mark(t)
			var took []time.Duration
			for range rounds {
				took = append(took, y.drain(s, n, 8))
			}
			rate[agents] = perSecond(n, median(took))
			total, lost := 0.0, 0.0
			asked := counted(server.Requests(t, since))
			var parts []string
			for _, kind := range kinds(asked) {
				each := float64(asked[kind]) / float64(n*rounds)
				total += each
				parts = append(parts, fmt.Sprintf("%s %.3f", kind, each))
			}
			lost = float64(asked["PUT jobs "+http.StatusText(http.StatusConflict)]) / float64(n*rounds)
			t.Logf("%d agents: %.0f jobs/s, %.2f times one agent; %.2f requests a job (%s); %.3f conflicts a claim (n=%d)",
				agents, rate[agents], rate[agents]/rate[1], total, strings.Join(parts, ", "), lost, n*rounds)
			if removed := asked["DELETE jobs"]; removed != n*rounds {
				t.Errorf("%d removals of %d jobs", removed, n*rounds)
			}
			if posted := asked["POST historicjobs"]; posted != n*rounds {
				t.Errorf("%d HistoricJobs of %d jobs", posted, n*rounds)
			}
			if agents == 1 && total > mostRequests+0.1 {
				t.Errorf("%.2f requests a job, goal %.0f", total, mostRequests)
			}
			if agents == 8 && lost > mostConflicts {
				t.Errorf("%.3f conflicts a claim, goal %.1f", lost, mostConflicts)
			}
			if agents == 8 && rate[8] < leastTotal*rate[1] {
				t.Errorf("8 agents do %.2f times the jobs of one, goal %.1f", rate[8]/rate[1], leastTotal)
			}
		})
	}
}
