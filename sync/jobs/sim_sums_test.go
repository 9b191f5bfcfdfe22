package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// simSums counts what has happened in all worlds together: it shows that the
// seeds reach what they are meant to reach.
type simSums struct {
	Counts map[string]int
	Waited time.Duration // the longest
	Dear   int           // percent of the budget of requests that the dearest took
}

func (s *simSums) add(w *simWorld) {
	if s.Counts == nil {
		s.Counts = map[string]int{}
	}
	s.Counts["worlds"]++
	s.Counts["agents"] += len(w.hosts)
	s.Counts["processes"] += len(w.processes)
	s.Counts["jobs"] += len(w.oracle.made)
	s.Counts["calls"] += w.requests()
	s.Counts["runs beside another on one repository"] += w.oracle.together
	for _, e := range w.audit {
		s.Counts["write "+e.verb]++
	}
	for _, l := range w.told {
		kind, _, _ := strings.Cut(l.what, " ")
		s.Counts["told "+kind]++
	}
	s.Dear = max(s.Dear, 100*w.requests()/w.budget())
	s.Waited = max(s.Waited, w.waited)
}

// join adds what another process has counted.
func (s *simSums) join(other simSums) {
	if s.Counts == nil {
		s.Counts = map[string]int{}
	}
	for kind, n := range other.Counts {
		s.Counts[kind] += n
	}
	s.Waited, s.Dear = max(s.Waited, other.Waited), max(s.Dear, other.Dear)
}

func (s *simSums) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(s.Counts)) {
		fmt.Fprintf(&b, "%s %d, ", k, s.Counts[k])
	}
	return b.String() + "longest wait after the calm " + s.Waited.Round(time.Second).String() + fmt.Sprintf(", dearest %d %% of its requests", s.Dear)
}
