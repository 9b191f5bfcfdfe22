package jobs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
)

// Two agents must not work on one repository at the same time. Inside an agent the
// queue excludes that. Between agents there is no lock, only the claims, which all of
// them see, so it goes as in Dekker's algorithm: write the own claim, then read the
// claims of others.
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
// Call the write that makes a claim, or brings it to life again, its birth. A worker
// begins only after a look at the claims that shows all births before its own. Let two
// agents work with live claims, and let B have the later birth: B's look shows A's
// claim alive, so B yields. It rests on this:
//
//   - Alive is judged as of a moment before the own birth, or before the list was
//     requested, so a later renewal is not missed.
//   - Clocks are off by ClockError at most, so a claim that is dead for another agent is
//     at least one expiry old. Its owner stops at two thirds of that, and does not renew
//     a claim that is older than the expiry less ClockError (lease.Terms.Lapsed).
//   - Claims of this agent are told from others by their token, not by their UID.
//
// Both agents go by the server's order and not by clocks, so exactly one of them yields.
// Where the watch is behind by more than watchPatience the claims are listed instead. A
// list has no order, so both may yield: each waits for a time of its own. The job that
// yields keeps its place in the queue.
//
// # What it does not promise
//
// A host that sleeps between its look and its first renewal works with a lease that has
// ended, until it renews. A claim that a person has removed protects no agent. Grafana's
// own drivers follow no such rule: their claims are respected, ours are not.

// watchPatience is how long the watch may be behind before the claims are
// listed. A watch that works shows a write within milliseconds.
const watchPatience = 250 * time.Millisecond

// maxYield is the longest backoff of a job whose agent has yielded.
const maxYield = 2 * time.Second

// exclusion keeps two agents from working on one repository.
type exclusion struct {
	*env
	foreign *foreignClaims
}

// occupied returns how long a repository is claimed by another agent at least,
// unless the watch shows the end of it; 0 = it is free.
func (x *exclusion) occupied(r queue.RepoKey) time.Duration {
	if r.Repository == "" {
		return 0
	}
	claims := x.foreign.on(r)
	now, err := x.clock.millis()
	if err != nil && len(claims) > 0 {
		return min(x.o.Expiry, x.o.Interval)
	}
	longest := time.Duration(0)
	for _, c := range claims {
		longest = max(longest, x.o.terms().Alive(c.at, now))
	}
	return min(longest, x.o.Interval)
}

// rival is the job of another agent that was first on a repository.
type rival struct {
	job   string
	owner string // token of its claim
	// unordered reports that the order of the claims is not known, so that the other
	// agent may yield at the same time.
	unordered bool
}

// first returns nil when a claim that was just written is the first live one on its
// repository, else the one that was first. An error reports that the lease was lost
// before that was known.
func (x *exclusion) first(h *heldJob) (*rival, error) {
	return x.rival(h, x.foreign.announcedClaim(h.uid, h.token), watchPatience)
}

// replacedBy returns the job of another agent that works on the repository of a job
// that is taken up again, or nil. The claim has been renewed already.
func (x *exclusion) replacedBy(h *heldJob) (*rival, error) { return x.rival(h, &ownClaim{}, 0) }

// rival waits until the watch has shown the own claim. When the patience is over, and
// again until it succeeds, it lists the claims instead.
func (x *exclusion) rival(h *heldJob, own *ownClaim, patience time.Duration) (*rival, error) {
	if h.repository == "" {
		return nil, nil
	}
	for {
		timer := time.NewTimer(patience)
		select {
		case <-own.known:
			timer.Stop()
			return x.shownRival(h, own), nil
		case <-h.ctx.Done():
			timer.Stop()
			return nil, context.Cause(h.ctx)
		case <-timer.C:
		}
		r, err := x.listedRival(h.ctx, h.repo())
		if err == nil {
			return r, nil
		}
		patience = max(queue.RetryDelay(1), min(2*patience, maxYield), x.clock.retryAfter(err))
	}
}

// shownRival asks the watch, which has shown the own claim. A claim counts as alive
// as of the time in the own one, for which the watch is up to date.
func (x *exclusion) shownRival(h *heldJob, own *ownClaim) *rival {
	for _, c := range x.foreign.earlier(own) {
		if x.o.terms().Alive(c.at, h.started) > 0 {
			return &rival{job: c.String(), owner: c.owner, unordered: own.listed}
		}
	}
	return nil
}

// listedRival asks the API for a live claim of another agent on a repository.
func (x *exclusion) listedRival(ctx context.Context, r queue.RepoKey) (*rival, error) {
	now, err := x.clock.millis()
	if err != nil {
		return nil, err
	}
	var found *rival
	err = x.server.claimedBefore(ctx, r.Namespace, now+x.o.Expiry.Milliseconds(), func(job *unstructured.Unstructured) {
		owner := api.Label(job, api.LabelClaimOwner)
		if repoOf(job) == r && claimed(job) && !x.claims.isOwnClaim(string(job.GetUID()), owner) && x.o.terms().Alive(claimTime(job), now) > 0 {
			found = &rival{job: keyOf(job).String(), owner: owner, unordered: true}
		}
	})
	return found, err
}

// foreignClaims are the claims of other agents, as the watch shows them, and those
// of this agent in between: exclusion.go depends on their order.
type foreignClaims struct {
	own interface{ isOwnClaim(uid, token string) bool } // claims of this agent that are not announced

	mu        sync.Mutex // guards everything below
	repos     map[queue.RepoKey]map[string]*foreignClaim
	announced map[string]*ownClaim // by UID, from before the claim until the watch shows its end
	order     int                  // of what was shown, as a number that only grows
	// listing reports that changes come from a list, in no order.
	listing bool
}

// foreignClaim is a claim of another agent.
type foreignClaim struct {
	jobRef
	owner   string
	at      int64  // of the claim, in milliseconds; 0 = not readable
	order   int    // when the watch has shown it first
	version uint64 // that was shown last
}

// ownClaim is a claim of this agent and what was accepted before it.
type ownClaim struct {
	token  string
	repo   queue.RepoKey  // as it was shown
	shown  bool           // by the watch or by a list that is not at its end
	known  chan struct{}  // closed when the fields below are
	listed bool           // a list has shown it, so some of the claims before may be later
	before []foreignClaim // the claims on the same repository, in the order in which they were shown
}

func newForeignClaims(own *claimTable) *foreignClaims {
	return &foreignClaims{own: own, repos: map[queue.RepoKey]map[string]*foreignClaim{}, announced: map[string]*ownClaim{}}
}

// see records a job; old is how it was shown before, or nil. It returns true when
// the last foreign claim on the repository has ended.
func (f *foreignClaims) see(old, job *unstructured.Unstructured) (freed bool) {
	uid, owner := api.Meta(job, "uid"), api.Label(job, api.LabelClaimOwner)
	version, _ := strconv.ParseUint(api.Meta(job, "resourceVersion"), 10, 64)
	r := repoOf(job)
	f.mu.Lock()
	defer f.mu.Unlock()
	if old != nil && repoOf(old) != r {
		f.remove(old)
	}
	x := f.repos[r][uid]
	if x != nil && version < x.version {
		return false // an old state of the job
	}
	if !claimed(job) {
		return f.end(job, false)
	}
	f.order++
	if own := f.announced[uid]; own != nil {
		switch {
		case own.token == owner:
			freed = f.remove(job)
			if !own.shown {
				own.shown, own.repo = true, r
				if !f.listing {
					f.know(own, false)
				}
			}
			return freed
		case own.shown:
			delete(f.announced, uid) // it was ours and is not any more
		}
	}
	if x == nil || x.owner != owner {
		x = &foreignClaim{jobRef: refOf(job), owner: owner, order: f.order}
		if f.repos[r] == nil {
			f.repos[r] = map[string]*foreignClaim{}
		}
		f.repos[r][uid] = x
	}
	x.version, x.at = version, claimTime(job)
	return false
}

// setListing records that a list begins or ends to be shown. At its end everything
// is shown that was accepted before the own claims in it, and some that is later.
func (f *foreignClaims) setListing(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listing = on
	for _, own := range f.announced {
		if !on && own.shown {
			f.know(own, true)
		}
	}
}

// know records which claims were accepted before an own one.
func (f *foreignClaims) know(own *ownClaim, listed bool) {
	select {
	case <-own.known:
		return
	default:
	}
	for _, other := range f.repos[own.repo] {
		own.before = append(own.before, *other)
	}
	slices.SortFunc(own.before, func(a, b foreignClaim) int { return cmp.Compare(a.order, b.order) })
	own.listed = listed
	close(own.known)
}

// deleted records that a job is gone, and returns what see does.
func (f *foreignClaims) deleted(job *unstructured.Unstructured) (freed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end(job, true)
}

// end records the end of a claim. A claim of this agent that the watch has not
// shown yet is still to come, unless the job is gone.
func (f *foreignClaims) end(job *unstructured.Unstructured, gone bool) (freed bool) {
	uid := api.Meta(job, "uid")
	if own := f.announced[uid]; own != nil && (gone || own.shown) {
		f.know(own, false)
		delete(f.announced, uid)
	}
	return f.remove(job)
}

func (f *foreignClaims) remove(job *unstructured.Unstructured) (freed bool) {
	r := repoOf(job)
	if _, ok := f.repos[r][api.Meta(job, "uid")]; !ok {
		return false
	}
	delete(f.repos[r], api.Meta(job, "uid"))
	if len(f.repos[r]) == 0 {
		delete(f.repos, r)
	}
	return f.repos[r] == nil
}

// announce records a claim that is about to be written.
func (f *foreignClaims) announce(uid, token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announced[uid] = &ownClaim{token: token, known: make(chan struct{})}
}

// withdraw forgets a claim that was not written.
func (f *foreignClaims) withdraw(uid, token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own := f.announced[uid]; own != nil && own.token == token {
		delete(f.announced, uid)
	}
}

// on returns the foreign claims on a repository.
func (f *foreignClaims) on(r queue.RepoKey) (out []foreignClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, x := range f.repos[r] {
		if !f.own.isOwnClaim(uid, x.owner) {
			out = append(out, *x)
		}
	}
	return out
}

// announcedClaim returns an own claim. When the watch has shown its end already, it
// is one that the watch will never show.
func (f *foreignClaims) announcedClaim(uid, token string) *ownClaim {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own := f.announced[uid]; own != nil && own.token == token {
		return own
	}
	return &ownClaim{token: token, known: make(chan struct{})}
}

// earlier returns the claims that were accepted before an own one, which is known.
func (f *foreignClaims) earlier(own *ownClaim) []foreignClaim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(own.before), func(x foreignClaim) bool { return f.own.isOwnClaim(x.uid, x.owner) })
}
