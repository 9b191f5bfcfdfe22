package jobs

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"limpet/state"
	"limpet/sync/jobs/queue"
)

// A claim in the state file that no driver works on is pending: the process stopped, the API was
// away for too long, or a request got no answer. There is one way to settle it (recoverer.go): its
// key goes to the head of the queue, and a driver reads the job.

// pendingClaim is a claim that waits to be settled.
type pendingClaim struct {
	claim state.Claim
	// restarted reports that the process has stopped since: the claim counts as an attempt, because
	// the job may be what stopped it.
	restarted bool
	result    result // of the work, when the claim is completing
}

// result is how the work of a job has ended.
type result struct {
	state       string // "" = it has not
	at          time.Time
	undelivered bool // the API did not take it at once
}

func refOfClaim(k state.Claim) jobRef {
	return jobRef{
		Key: queue.Key{Namespace: k.Namespace, Name: k.Name}, uid: k.UID,
		repository: k.Repository, action: k.Action, attempt: k.Attempt,
	}
}

// claimTable has all claims of this agent.
type claimTable struct {
	total atomic.Int64 // jobs that were held

	mu      sync.Mutex              // guards the fields below
	held    map[string]*heldJob     // by UID
	pending map[string]pendingClaim // by UID; a driver that is letting go of its job has it in both
	known   map[string]bool         // UIDs of jobs that were held, until they are deleted
}

func (t *claimTable) addHeld(h *heldJob) {
	t.total.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[h.ref.uid], t.known[h.ref.uid] = h, true
	delete(t.pending, h.ref.uid)
}

func (t *claimTable) dropHeld(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, uid)
}

// addKnown records that a job was held by the process before this one.
func (t *claimTable) addKnown(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[uid] = true
}

// isKnown reports whether a job was held here before.
func (t *claimTable) isKnown(uid string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[uid]
}

// dropKnown reports whether a deleted job was held here, and forgets it.
func (t *claimTable) dropKnown(uid string) (known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known = t.known[uid]
	delete(t.known, uid)
	return known
}

// get returns the held job with that UID, or nil.
func (t *claimTable) get(uid string) *heldJob {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[uid]
}

// all returns the held jobs but those that their driver is letting go of, which are pending
// already, and the pending claims, both ordered by UID.
func (t *claimTable) all() ([]*heldJob, []pendingClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := make([]*heldJob, 0, len(t.held))
	for _, uid := range slices.Sorted(maps.Keys(t.held)) {
		if _, over := t.pending[uid]; !over {
			held = append(held, t.held[uid])
		}
	}
	return held, slices.SortedFunc(maps.Values(t.pending), byUID)
}

// stored returns all claims as the state file has them.
func (t *claimTable) stored() []pendingClaim {
	held, out := t.all()
	for _, h := range held {
		claim, result := h.stored()
		out = append(out, pendingClaim{claim: claim, result: result})
	}
	return out
}

func byUID(a, b pendingClaim) int { return cmp.Compare(a.claim.UID, b.claim.UID) }

// addPending has a claim settled later. The driver that has its key gives it back with an urgent
// result.
func (t *claimTable) addPending(p pendingClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending[p.claim.UID] = p
}

func (t *claimTable) dropPending(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, uid)
}

// pendingOf returns the pending claims under a key, ordered by UID. There may be two when the name
// was reused.
func (t *claimTable) pendingOf(k queue.Key) (out []pendingClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pending {
		if refOfClaim(p.claim).Key == k {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, byUID)
	return out
}

func (t *claimTable) pendingCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}

// openIntent returns an intent whose request may still arrive.
func (t *claimTable) openIntent(uid string) (state.Claim, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.pending[uid]
	return p.claim, ok && p.claim.Phase == state.PhaseIntent
}

// token returns the token under which this agent works on a job or has still to settle it. ok is
// false for a job of others.
func (t *claimTable) token(uid string) (token string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.held[uid]; h != nil {
		return h.token, true
	}
	p, ok := t.pending[uid]
	return p.claim.Token, ok
}

// isOwnClaim reports whether a claim is one of this process, or one that it has to settle after the
// one before it. That the job was wanted here too is not enough: another agent may have got it.
func (e *env) isOwnClaim(uid, token string) bool {
	own, ok := e.claims.token(uid)
	return ok && own == token || agentOf(token) == e.o.self
}
