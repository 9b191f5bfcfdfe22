package jobs

import (
	"math"
	"strconv"
	"sync"
	"time"

	"limpet/sync/jobs/queue"
)

// Agents that share a queue must not all claim the same job at once: one would get
// it, and the others would have sent a claim in vain. They do not talk to each
// other, but all of them see the same claims, and a claim names its agent. So each
// ranks itself among the agents whose claims it has seen, by the rendezvous hash of
// agent and repository, and all come to the same order. The first one claims at
// once; the one with k agents before it waits log2(1+k) steps, reads the cache of
// the watch again, and claims what is still free. The server's conflict decides the
// rest. The hash is of the repository and not of the job because agents exclude each
// other by repository: the agent that had it last has its mirror, and of two claims
// there one would have to be given back.
//
// A step has to be longer than it takes an agent to claim and the others to see it,
// or claims cross; and not much longer, because it is what a job waits for when the
// agents before this one are busy or gone. How long that is depends on the network
// and on how busy the hosts are, so it is found by trying: a claim that comes too late
// or has to be given back doubles the step, and each claim that is won takes a small
// part off. Over many claims the two balance where about one claim in 180 is lost,
// unless the shortest step is enough already. Grafana's own drivers and older agents,
// which do not name themselves in their claims, are not waited for, and to lose against
// them changes nothing.
//
// The others do not know an agent that has claimed nothing yet, so it has to win a race
// to become one of them. There may be many like it: it tries that one time in eight, for
// some time not at all when it has lost, and waits for some steps more otherwise, which
// are another number for each and small for few.

const (
	firstStep = 50 * time.Millisecond // about what the slowest of a hundred claims takes, from POST to claim
	minStep   = 25 * time.Millisecond // below it a job would gain nothing
	maxStep   = time.Second           // bounds how long a job waits for an agent that does not come
	// stepShare is one in how many parts of the step a won claim takes off.
	stepShare = 256
	// peerTTL is how long an agent is remembered that claims nothing. An agent has
	// another name after each start.
	peerTTL = 10 * time.Minute
	// maxPeers bounds the memory. More of them would change a delay by little.
	maxPeers = 4096
	// newcomerTries is one in how many times a newcomer claims in its place.
	newcomerTries = 8
	// newcomers is the number of newcomers up to which few of them claim together.
	newcomers = 256
	// firstPause and lastPause bound the time without tries after a lost claim.
	firstPause, lastPause = time.Second, 64 * time.Second
)

// claimDelay decides how long this agent leaves a free repository to others.
type claimDelay struct {
	self string

	mu    sync.Mutex // guards the fields below
	peers map[string]time.Time
	// turns are when this agent may claim at a repository that it leaves to others
	// at the moment.
	turns map[queue.RepoKey]time.Time
	step  time.Duration
	// claimed reports that this agent has won a claim, so that the others know it.
	claimed bool
	losses  int       // of a newcomer
	pause   time.Time // until then a newcomer does not try
}

func newClaimDelay(self string) *claimDelay {
	return &claimDelay{self: self, peers: map[string]time.Time{}, turns: map[queue.RepoKey]time.Time{}, step: firstStep}
}

// claimSeen records a claim that the watch has shown.
func (d *claimDelay) claimSeen(agent string, r queue.RepoKey, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.turns, r)
	if _, known := d.peers[agent]; agent != "" && agent != d.self && (known || len(d.peers) < maxPeers) {
		d.peers[agent] = now
	}
}

// reset forgets that this agent has waited for a repository: next time it waits
// again.
func (d *claimDelay) reset(r queue.RepoKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.turns, r)
}

// won records a claim of this agent.
func (d *claimDelay) won() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = max(d.step-d.step/stepShare, minStep)
	d.claimed = true
}

// lost records a claim of this agent that came after one of another agent.
func (d *claimDelay) lost(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = min(2*d.step, maxStep)
	d.pause = now.Add(min(firstPause<<min(d.losses, 6), lastPause))
	d.losses++
}

// remaining returns how much longer this agent leaves a free repository to others;
// 0 or less = it may claim. The time runs from the first call on, until a claim
// there is seen.
func (d *claimDelay) remaining(r queue.RepoKey, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if turn, ok := d.turns[r]; ok {
		return turn.Sub(now)
	}
	delay := d.delay(d.rank(r, now), len(d.peers), r, now)
	if delay > 0 {
		d.turns[r] = now.Add(delay)
	}
	return delay
}

// delay is how long this agent leaves a repository to others that comes after rank of
// its peers there.
func (d *claimDelay) delay(rank, peers int, r queue.RepoKey, now time.Time) time.Duration {
	steps := math.Log2(float64(1 + rank))
	if !d.claimed && peers > 0 {
		chance := queue.Hash(d.self, r.Namespace, r.Repository, strconv.FormatInt(now.UnixNano(), 36))
		if chance%newcomerTries != 0 || now.Before(d.pause) {
			u := float64(chance>>11) / (1 << 53)
			steps += newcomerTries * math.Log1p(u*(newcomers-1)) / math.Log(newcomers)
		}
	}
	return time.Duration(steps * float64(d.step))
}

// rank returns how many agents come before this one at a repository.
func (d *claimDelay) rank(r queue.RepoKey, now time.Time) (before int) {
	own := queue.Favour(d.self, r)
	for name, seen := range d.peers {
		switch {
		case now.Sub(seen) > peerTTL:
			delete(d.peers, name)
		case queue.Favour(name, r) > own:
			before++
		}
	}
	return before
}
