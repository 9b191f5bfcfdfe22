package jobs

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git/transfer"
	"limpet/sync/jobs/joblog"
)

// Snapshot is the state of a Controller at a moment. It is read-only and costs no I/O.
type Snapshot struct {
	Running     []Running     // jobs that this agent holds, the oldest first
	Undelivered []Undelivered // the oldest first
	// SuspendedClaims are the claims that no driver works on, owner token by UID: the work has ended
	// or was left, and the API has not been updated yet.
	SuspendedClaims map[string]string
	DrainingSince   time.Time // zero = the agent claims jobs
	// Busy is how much of its own a draining agent has not ended yet: jobs that a driver has, claims
	// that wait to be settled, and results that wait for the API.
	Busy int
}

// Running is a job that this agent holds, as it is at the moment.
type Running struct {
	UID, Namespace, Name string
	Repository, Action   string
	Driver               string // that works on it: its index, or DriverCleanup
	State                string // working, or cancelling once it was told to stop
	Attempt, MaxAttempts int
	Created              time.Time      // of the Job, by the server's clock
	Started              time.Time      // of this run, by the local clock
	LeaseUntil           time.Time      // when the claim expires unless it is renewed, by the local clock
	RenewAt              time.Time      // when it is renewed next
	Results                             // so far
	Progress             float64        // 0 to 100; below 0 = the total is unknown
	Transfer             transfer.State // from Git servers; zero = none
	Lines                []joblog.Line  // of the log, the last 200, oldest first
	// Job is the object as it was seen last; in Event.Last alone.
	Job *unstructured.Unstructured
}

// Undelivered is a job that is done, but whose result the API has not accepted yet. The result is
// in the state file; it is sent when the API is back, if the job is still ours then.
type Undelivered struct {
	UID, Namespace, Name string
	Repository, Action   string
	State                string    // of the result, as history calls it
	Since                time.Time // the end of the work
}

// Snapshot returns the state at this moment.
func (c *Controller) Snapshot() Snapshot {
	s := Snapshot{SuspendedClaims: map[string]string{}}
	s.DrainingSince, s.Busy = c.drain.state()
	held, pending := c.env.claims.all()
	for _, h := range held {
		s.Running = append(s.Running, h.running())
	}
	for _, p := range pending {
		s.SuspendedClaims[p.claim.UID] = p.claim.Token
	}
	for _, p := range c.env.claims.stored() {
		if k, r := p.claim, p.result; r.undelivered && r.state != "" {
			s.Undelivered = append(s.Undelivered, Undelivered{
				UID: k.UID, Namespace: k.Namespace, Name: k.Name, Repository: k.Repository, Action: k.Action, State: r.state, Since: r.at,
			})
		}
	}
	slices.SortFunc(s.Running, func(a, b Running) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.UID, b.UID)) })
	slices.SortFunc(s.Undelivered, func(a, b Undelivered) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID)) })
	return s
}

func (h *heldJob) running() Running {
	r := Running{
		UID: h.ref.uid, Namespace: h.ref.Namespace, Name: h.ref.Name, Repository: h.ref.repository, Action: h.ref.action, Driver: h.driver,
		State: api.StateWorking, Attempt: h.ref.attempt, MaxAttempts: h.env.o.MaxAttempts, Created: h.created, Started: h.began,
		Progress: -1, Lines: h.env.events.logs.Lines(h.ref.uid),
	}
	var p *Progress
	h.change(func() {
		r.LeaseUntil, r.RenewAt = h.lease.Expires(), h.lease.Next()
		if h.cancel != "" {
			r.State = "cancelling"
		}
		p = h.progress
	})
	if p == nil {
		return r
	}
	r.Results = p.look()
	r.Transfer = p.Transfer.State()
	if r.Total > 0 {
		r.Progress = r.percent()
	}
	return r
}

// Backlog is what this agent knows at a moment of the jobs that are not done. It is for gauges: a
// number that is counted up and down by events drifts.
type Backlog struct {
	Unclaimed   map[string]int  // jobs without a claim, by action, as the watch shows them
	Claimed     int             // jobs with a claim
	Queued      int             // keys in the queue of this agent: those that wait, run or are delayed
	Waiting     int             // those that wait for a driver
	Added       uint64          // keys that came to wait since the start
	Looking     []time.Duration // how long each driver that has a key has been busy with it
	Undelivered int             // results in the state file that the API has not accepted yet
}

// Backlog counts what there is now. It reads the cache of the watch and the queue, not the API, and
// is safe for concurrent use.
func (c *Controller) Backlog() Backlog {
	b := Backlog{Unclaimed: map[string]int{}}
	c.queue.count(&b)
	for _, job := range c.jobs.Objects() {
		if cachedClaimed(job) {
			b.Claimed++
		} else {
			b.Unclaimed[job.Text(pathAction)]++
		}
	}
	for _, p := range c.env.claims.stored() {
		if p.claim.Phase == state.PhaseCompleting {
			b.Undelivered++
		}
	}
	return b
}
