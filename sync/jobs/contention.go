package jobs

import (
	"sync"
	"time"
)

// An agent leaves a repository to those before it (crew.go) for head starts. A
// head start has to be longer than it takes the first of them to claim and the
// others to see it, or claims cross; and not much longer, because it is what a job
// waits for when the first agent does not come.
//
// How long that is depends on the network and on how busy the hosts are, so it is
// found by trying: a claim that comes too late or has to be given back doubles the
// head start, and each claim that is won takes a small part off. Over many claims
// the two balance where about one claim in 180 is early, unless the shortest head
// start is enough already. Whom the other agent has not waited for anyway, such as
// Grafana's drivers, teaches nothing.

const (
	// firstHead is the head start of an agent that knows nothing yet. It is about
	// what the slowest of a hundred claims takes here, from POST to claim.
	firstHead = 50 * time.Millisecond
	// minHead is the shortest head start: below it a job would gain nothing.
	minHead = 25 * time.Millisecond
	// maxHead bounds how long a job waits for an agent that does not come.
	maxHead = time.Second
	// headPerRequest is how many times as long as the lost request itself a head
	// start is at least.
	headPerRequest = 4
	// headShare is one in how many parts of the head start a won claim takes off.
	headShare = 256
)

// rivalry is what an agent has learned of others that want the same jobs.
type rivalry struct {
	mu        sync.Mutex // guards the fields below
	now       time.Duration
	won, lost int // races
}

func newRivalry() *rivalry { return &rivalry{now: firstHead} }

// head returns the head start.
func (r *rivalry) head() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// win notes a claim that was written.
func (r *rivalry) win() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.won++
	r.now = max(r.now-r.now/headShare, minHead)
}

// lose notes a claim that was sent and came too late; it took that long. turns says
// that who was before it may claim in turn.
func (r *rivalry) lose(took time.Duration, turns bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost++
	if turns {
		r.now = min(max(2*r.now, headPerRequest*took), maxHead)
	}
}

// early notes a claim that had to be given back to an agent that claims in turn.
func (r *rivalry) early() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = min(2*r.now, maxHead)
}

// races returns how many claims were won and lost.
func (r *rivalry) races() (won, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.won, r.lost
}
