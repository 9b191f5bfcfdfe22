package jobs

import (
	"math"
	"sync"
	"time"
)

// Agents do not know how many they are. When a single job comes while many of
// them have nothing to do, all see it within the same millisecond, and all but
// one would send a claim for nothing. So an agent that has lost races hesitates:
// it waits a part of its window, looks at the watch and at the job again, and
// claims only what is still free. An agent that has lost none waits for nothing.
//
// The part is fixed by a hash of agent and job, so that each job has an order of
// its own among the agents. It is shaped so that few go early, whatever their
// number: of n agents, those that wait less than x windows (0 <= x <= 1) are
// n (rivals^x - 1) / (rivals - 1) on the average. The first goes where this is
// about 1, and the density there is about ln(rivals) x 2 per window or less for
// every n from 2 to rivals. A claim that is under way is seen by the others
// after d, about two round trips, so with a window w some 11 d/w of them go in
// vain: it depends on the window and the distance, but not on the number.
//
// The window is found by trying. A lost race doubles it, a won one halves it, and
// nothing else changes it. Over many claims doublings and halvings balance: each
// claim has one winner, so there is about one loser to each claim, as long as
// the window that this needs, about 11 d, is below maxWindow. In fact there are
// fewer: an agent that wins soon waits for nothing any more, is before all others
// as long as it has a driver free, and costs neither time nor conflicts.
//
// A race is lost when a claim was sent and the job was found to be taken or gone.
// Who saw that before sending has lost nothing, and who conflicts with another
// writer of a job that is still free has not met a rival.

const (
	// rivals is the number of agents up to which the shape holds its promise.
	rivals = 256
	// maxWindow bounds how long a job waits for agents that are all polite.
	maxWindow = 2 * time.Second
	// firstWindow is how many times as long as the lost request itself the first
	// window is.
	firstWindow = 4
	// minWindow is the shortest window: below it waiting costs more than a
	// conflict.
	minWindow = 10 * time.Millisecond
)

// rivalry is what an agent has learned of others that want the same jobs.
type rivalry struct {
	agent string

	mu        sync.Mutex // guards the fields below
	window    time.Duration
	won, lost int // races
}

// hesitation returns how long to wait before a job is claimed.
func (r *rivalry) hesitation(uid string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.window == 0 {
		return 0
	}
	return time.Duration(float64(r.window) * part(r.agent, uid))
}

// part is between 0 and 1; see above for its distribution.
func part(agent, uid string) float64 {
	u := float64(hashOf(agent, uid)>>11) / (1 << 53)
	return math.Log1p(u*(rivals-1)) / math.Log(rivals)
}

// win notes a claim that was written.
func (r *rivalry) win() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.won++
	if r.window /= 2; r.window < minWindow {
		r.window = 0
	}
}

// lose notes a claim that was sent and came too late; it took that long.
func (r *rivalry) lose(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost++
	r.window = min(max(2*r.window, firstWindow*took, minWindow), maxWindow)
}

// races returns how many claims were won and lost.
func (r *rivalry) races() (won, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.won, r.lost
}
