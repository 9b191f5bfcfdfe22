package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// simSums counts what has happened in all worlds together: it shows that the
// seeds reach what they are meant to reach.
type simSums struct {
	mu     sync.Mutex // guards the fields below
	counts map[string]int
	waited time.Duration // the longest
	dear   int           // percent of the budget of requests that the dearest took
}

func (s *simSums) add(w *simWorld) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts["worlds"]++
	s.counts["agents"] += len(w.hosts)
	s.counts["processes"] += len(w.processes)
	s.counts["jobs"] += len(w.oracle.made)
	s.counts["calls"] += w.requests()
	s.counts["runs beside another on one repository"] += w.oracle.together
	for _, e := range w.audit {
		s.counts["write "+e.verb]++
	}
	for _, l := range w.told {
		kind, _, _ := strings.Cut(l.what, " ")
		s.counts["told "+kind]++
	}
	s.dear = max(s.dear, 100*w.requests()/w.budget())
	s.waited = max(s.waited, w.waited)
}

func (s *simSums) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Fprintf(&b, "%s %d, ", k, s.counts[k])
	}
	return b.String() + "longest wait after the calm " + s.waited.Round(time.Second).String() + fmt.Sprintf(", dearest %d %% of its requests", s.dear)
}
