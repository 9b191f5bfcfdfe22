package jobs

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
)

// Two agents must not work on one repository at the same time. Inside an agent the queue excludes
// that. Between agents there is no lock, only the claims, which all of them see, so it goes as in
// Dekker's algorithm: write the own claim, then read the claims of others.
//
//	Before a claim   While the watch shows a live foreign claim on the repository, the
//	                 repository is in backoff, and no request is spent on it.
//	After a claim    The agent waits until the watch shows its own claim, and so every
//	                 claim that the server accepted before. (After a new list that
//	                 holds at the end of the list.) If there is a live one, this agent
//	                 releases its job. If not, agents that come later see this claim.
//	Found again      A claim that recoverer.go settles is renewed, then the claims are
//	                 listed, and any live one counts as earlier: the watch has shown
//	                 the own claim long ago, and it may have been dead in between.
//
// # Why nothing runs together
//
// Call the write that makes a claim, or brings it to life again, its birth. A worker begins only
// after a look at the claims that shows all births before its own. Let two agents work with live
// claims, and let B have the later birth: B's look shows A's claim alive, so B yields. It rests on
// this:
//
//   - Alive is judged as of a moment before the own birth, or before the list was
//     requested, so a later renewal is not missed.
//   - Clocks are off by ClockError at most, so a claim that is dead for another agent is
//     at least one expiry old. Its owner stops at two thirds of that, and does not renew
//     a claim that is older than the expiry less ClockError (lease.Terms.Lapsed).
//   - Claims of this agent are told from others by their token, not by their UID.
//
// Both agents go by the server's order and not by clocks, so exactly one of them yields. A list has
// no order, so both may yield: each waits for a time of its own.
//
// A host that sleeps between its look and its first renewal works with a lease that has ended,
// until it renews. Grafana's own drivers follow no such rule: their claims are respected, ours are
// not.

const (
	// watchPatience is how long the watch may be behind before the claims are listed. A watch that
	// works shows a write within milliseconds.
	watchPatience = 250 * time.Millisecond
	// maxYield is the longest backoff of a job whose agent has yielded.
	maxYield = 2 * time.Second
)

// exclusion keeps two agents from working on one repository.
type exclusion struct {
	env  *env
	seen *claimIndex
	turn chan struct{} // holds a token while a driver lists the claims
}

// occupied returns how long a repository is claimed by another agent at least, unless the watch
// shows the end of it; 0 = it is free.
func (x *exclusion) occupied(r queue.RepoKey) (longest time.Duration) {
	if r.Repository == "" {
		return 0
	}
	claims := x.seen.foreign(r)
	now, err := x.env.clock.millis()
	if err != nil && len(claims) > 0 {
		return min(x.env.o.Expiry, x.env.o.Interval)
	}
	for _, c := range claims {
		longest = max(longest, x.env.o.terms().Alive(c.at, now))
	}
	return min(longest, x.env.o.Interval)
}

// rival is the job of another agent that was first on a repository.
type rival struct {
	job   string
	owner string // token of its claim
	// unordered reports that the order of the claims is not known, so that the other agent may yield
	// at the same time.
	unordered bool
}

// rival returns the live claim of another agent that was on the repository of a held job before its
// own, or nil. For a fresh claim it waits until the watch has shown it; when the patience is over,
// and for a claim that was found again, it lists the claims instead. Drivers list in turn, and the
// watch may show the claim of one that waits: lists of all at once would keep the watch of a busy
// host behind for good. An error reports that the lease was lost before that was known.
func (x *exclusion) rival(h *heldJob, fresh bool) (*rival, error) {
	if h.ref.repository == "" {
		return nil, nil
	}
	patience := time.Duration(0)
	if fresh {
		patience = watchPatience
	}
	for {
		over := time.After(patience)
		var turn chan struct{} // nil until then
		for listing := false; !listing; {
			changed := x.seen.changed()
			if r, known := x.shownRival(h); fresh && known {
				return r, nil
			}
			select {
			case <-changed:
			case <-over:
				turn = x.turn
			case turn <- struct{}{}:
				listing = true
			case <-h.ctx.Done():
				return nil, context.Cause(h.ctx)
			}
		}
		r, err := x.listedRival(h.ctx, h.ref.repo())
		<-x.turn
		if err == nil {
			return r, nil
		}
		patience = max(queue.RetryDelay(1), x.env.clock.retryAfter(err))
	}
}

// shownRival asks the watch. A claim counts as alive as of the time in the own one, for which the
// watch is up to date.
func (x *exclusion) shownRival(h *heldJob) (r *rival, known bool) {
	earlier, known := x.seen.earlier(h.ref.repo(), h.ref.uid, h.token)
	for _, c := range earlier {
		if x.env.o.terms().Alive(c.at, h.started) > 0 {
			return &rival{c.job, c.owner, c.listed}, known
		}
	}
	return nil, known
}

// listedRival asks the API for a live claim of another agent on a repository.
func (x *exclusion) listedRival(ctx context.Context, r queue.RepoKey) (found *rival, err error) {
	now, err := x.env.clock.millis()
	if err != nil {
		return nil, err
	}
	selector := claimedBefore(now + x.env.o.Expiry.Milliseconds())
	err = x.env.server.list(ctx, api.Jobs, r.Namespace, selector, func(job *unstructured.Unstructured) error {
		owner := api.Label(job, api.LabelClaimOwner)
		if repoOf(job) == r && claimed(job) && !x.env.isOwnClaim(string(job.GetUID()), owner) && x.env.o.terms().Alive(claimTime(job), now) > 0 {
			found = &rival{job: keyOf(job).String(), owner: owner, unordered: true}
		}
		return nil
	})
	return found, err
}

// claimIndex has the claims of all agents by repository, as the watch shows them.
type claimIndex struct {
	own func(uid, token string) bool // whether a claim is this agent's

	mu    sync.Mutex // guards everything below
	repos map[queue.RepoKey]map[string]*seenClaim
	order int // of what was shown, as a number that only grows
	// listing reports that changes come from a list, in no order.
	listing bool
	next    chan struct{} // closed at the next change
}

// seenClaim is a claim that the watch has shown.
type seenClaim struct {
	job, uid, owner string
	at              int64 // of the claim, in milliseconds; 0 = not readable
	order           int   // when it was shown first
	listed          bool  // a list has shown it first
}

func newClaimIndex(own func(uid, token string) bool) *claimIndex {
	return &claimIndex{own: own, repos: map[queue.RepoKey]map[string]*seenClaim{}, next: make(chan struct{})}
}

// see records a job as it is shown, or that it is gone. It returns true when the last foreign claim
// on the repository has ended.
func (f *claimIndex) see(job shownJob, gone bool) (freed bool) {
	r := job.repo()
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.repos[r][job.uid]
	if gone || !job.claimed {
		if c == nil {
			return false
		}
		delete(f.repos[r], job.uid)
		freed = !f.own(c.uid, c.owner) && len(f.foreignOf(r)) == 0
		if len(f.repos[r]) == 0 {
			delete(f.repos, r)
		}
		return freed
	}
	if c == nil || c.owner != job.owner {
		f.order++
		c = &seenClaim{job: job.String(), uid: job.uid, owner: job.owner, order: f.order, listed: f.listing}
		if f.repos[r] == nil {
			f.repos[r] = map[string]*seenClaim{}
		}
		f.repos[r][job.uid] = c
		f.wake()
	}
	c.at = job.claimedAt
	return false
}

// setListing records that a list begins or ends to be shown. At its end everything is shown that
// was accepted before the own claims in it, and some that is later.
func (f *claimIndex) setListing(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listing = on
	f.wake()
}

// changed returns a channel that is closed at the next change.
func (f *claimIndex) changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

func (f *claimIndex) wake() {
	close(f.next)
	f.next = make(chan struct{})
}

// foreign returns the claims of other agents on a repository.
func (f *claimIndex) foreign(r queue.RepoKey) []seenClaim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.foreignOf(r)
}

func (f *claimIndex) foreignOf(r queue.RepoKey) (out []seenClaim) {
	for _, c := range f.repos[r] {
		if !f.own(c.uid, c.owner) {
			out = append(out, *c)
		}
	}
	return out
}

// earlier returns the foreign claims on a repository that were accepted before an own one. known is
// false until the watch has shown the own one; listed reports that a list has, so some of the
// claims may be later.
func (f *claimIndex) earlier(r queue.RepoKey, uid, token string) (out []seenClaim, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.repos[r][uid]
	if own == nil || own.owner != token || own.listed && f.listing {
		return nil, false
	}
	for _, c := range f.foreignOf(r) {
		if c.order < own.order || own.listed && c.listed {
			c.listed = own.listed
			out = append(out, c)
		}
	}
	return out, true
}
