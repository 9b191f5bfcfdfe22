package queue

import (
	"fmt"
	"testing"
	"time"
)

// TestClaimDelay: all agents come to one order, the first of it claims at once, and an agent that
// is not seen any more is not waited for.
func TestClaimDelay(t *testing.T) {
	t.Parallel()
	repo := func(name string) RepoKey { return RepoKey{"default", name} }
	now := time.Unix(1_800_000_000, 0)
	agents := make([]*ClaimDelay, 8)
	for i := range agents {
		agents[i] = NewClaimDelay(fmt.Sprint("agent-", i))
		for j := range agents {
			agents[i].ClaimSeen(fmt.Sprint("agent-", j), repo("seen"), now)
		}
		agents[i].ClaimSeen("", repo("seen"), now) // one of Grafana's drivers
	}
	var last *ClaimDelay
	for n := range 100 {
		r, delays := repo(fmt.Sprint(n)), map[time.Duration]int{}
		for _, d := range agents {
			delay := d.Remaining(r, now)
			if delays[delay]++; delay == 3*firstStep { // log2(1+7)
				last = d
			}
			if again := d.Remaining(r, now.Add(delay)); delay > 0 && again != 0 {
				t.Fatalf("%s more after a delay of %s", again, delay)
			}
		}
		if len(delays) != 8 || delays[0] != 1 || delays[3*firstStep] != 1 {
			t.Fatalf("delays %v", delays)
		}
	}
	last.ClaimSeen("agent-0", repo("99"), now) // the turn is over
	if d := last.Remaining(repo("99"), now.Add(peerTTL+time.Second)); d != 0 || len(last.peers) != 0 {
		t.Errorf("waits %s for agents that are gone: %v", d, last.peers)
	}
	for n := range 2 * maxPeers {
		last.ClaimSeen(fmt.Sprint("other-", n), RepoKey{}, now)
	}
	if len(last.peers) != maxPeers {
		t.Errorf("%d agents are remembered", len(last.peers))
	}
}
