package queue

import (
	"math"
	"sync"
	"time"
)

// Agents that share a queue must not all claim the same job at once. They do not talk to each
// other, but all see the same claims, and a claim names its agent. So each ranks itself among the
// agents whose claims it has seen, by the rendezvous hash of agent and repository: the one with k
// agents before it waits log2(1+k) steps, reads the cache of the watch again, and claims what is
// still free. The server's conflict decides the rest. The hash is of the repository because agents
// exclude each other by repository, and the agent that had it last has its mirror.
//
// A step has to be longer than it takes an agent to claim and the others to see it, or claims
// cross; and not much longer, because jobs wait for it when the agents before this one are busy or
// gone. A lost claim doubles it, one that is won takes a small part off. Grafana's drivers do not
// name themselves in their claims: they are not waited for.

const (
	firstStep = 50 * time.Millisecond
	minStep   = 25 * time.Millisecond
	maxStep   = time.Second // bounds how long a job waits for an agent that does not come
	stepShare = 256         // one in how many parts of the step a won claim takes off
	// peerTTL is how long an agent is remembered that claims nothing. An agent has another name after
	// each start.
	peerTTL = 10 * time.Minute
	// maxPeers bounds the memory. More of them would change a delay by little.
	maxPeers = 4096
)

// ClaimDelay decides how long this agent leaves a free repository to others.
type ClaimDelay struct {
	self string

	mu    sync.Mutex // guards the fields below
	peers map[string]time.Time
	// turns are when this agent may claim at a repository that it leaves to others at the moment.
	turns map[RepoKey]time.Time
	step  time.Duration
}

// NewClaimDelay returns the delay of the agent of that name.
func NewClaimDelay(self string) *ClaimDelay {
	return &ClaimDelay{self: self, peers: map[string]time.Time{}, turns: map[RepoKey]time.Time{}, step: firstStep}
}

// ClaimSeen records a claim that the watch has shown.
func (d *ClaimDelay) ClaimSeen(agent string, r RepoKey, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.turns, r)
	if _, known := d.peers[agent]; agent != "" && agent != d.self && (known || len(d.peers) < maxPeers) {
		d.peers[agent] = now
	}
}

// Reset forgets that this agent has waited for a repository: next time it waits again.
func (d *ClaimDelay) Reset(r RepoKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.turns, r)
}

// Won and Lost record a claim of this agent; a lost one came after one of another agent.
func (d *ClaimDelay) Won() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = max(d.step-d.step/stepShare, minStep)
}

func (d *ClaimDelay) Lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = min(2*d.step, maxStep)
}

// Remaining returns how much longer this agent leaves a free repository to others; 0 or less = it
// may claim. The time runs from the first call on, until a claim there is seen.
func (d *ClaimDelay) Remaining(r RepoKey, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if turn, ok := d.turns[r]; ok {
		return turn.Sub(now)
	}
	delay := time.Duration(math.Log2(float64(1+d.rank(r, now))) * float64(d.step))
	if delay > 0 {
		d.turns[r] = now.Add(delay)
	}
	return delay
}

// rank returns how many agents come before this one at a repository.
func (d *ClaimDelay) rank(r RepoKey, now time.Time) (before int) {
	own := Favour(d.self, r)
	for name, seen := range d.peers {
		switch {
		case now.Sub(seen) > peerTTL:
			delete(d.peers, name)
		case Favour(name, r) > own:
			before++
		}
	}
	return before
}
