package jobs

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
)

// foreignClaims are the claims of other agents, as the watch shows them, and those
// of this agent in between: exclude.go depends on their order.
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
