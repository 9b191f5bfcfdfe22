package jobs

import (
	"slices"
	"sort"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// neighbours are the claims of other agents, as the watch shows them, and those
// of this agent in between: exclude.go goes by their order.
type neighbours struct {
	mine func(uid, owner string) bool // claims of this agent that are not in own

	mu    sync.Mutex // guards everything below
	lanes map[lane]map[string]*neighbour
	own   map[string]*ownClaim // by UID, from before the claim until the watch shows its end
	order int                  // of what was shown, as a number that only grows
	// listing says that changes come from a list, in no order.
	listing bool
}

// neighbour is a claim of another agent.
type neighbour struct {
	about
	owner   string
	at      int64  // of the claim, in milliseconds; 0 = not readable
	order   int    // when the watch has shown it first
	version uint64 // that was shown last
}

// ownClaim is a claim of this agent and what was accepted before it.
type ownClaim struct {
	token  string
	lane   lane          // as it was shown
	shown  bool          // by the watch or by a list that is not at its end
	known  chan struct{} // closed when the fields below are
	listed bool          // a list has shown it, so some of the claims before may be later
	before []neighbour   // the claims on the same repository, in the order in which they were shown
}

func newNeighbours(mine func(uid, owner string) bool) *neighbours {
	return &neighbours{mine: mine, lanes: map[lane]map[string]*neighbour{}, own: map[string]*ownClaim{}}
}

// see takes note of a job; old is how it was shown before, or nil. It returns
// true when the last claim of a neighbour on the repository has ended.
func (n *neighbours) see(old, job *unstructured.Unstructured) (freed bool) {
	uid, owner := api.Meta(job, "uid"), api.Label(job, api.LabelClaimOwner)
	version, _ := strconv.ParseUint(api.Meta(job, "resourceVersion"), 10, 64)
	l := laneOf(job)
	n.mu.Lock()
	defer n.mu.Unlock()
	if old != nil && laneOf(old) != l {
		n.remove(old)
	}
	x := n.lanes[l][uid]
	if x != nil && version < x.version {
		return false // an old picture
	}
	if !claimed(job) {
		return n.end(job, false)
	}
	n.order++
	if own := n.own[uid]; own != nil {
		switch {
		case own.token == owner:
			freed = n.remove(job)
			if !own.shown {
				own.shown, own.lane = true, l
				if !n.listing {
					n.know(own, false)
				}
			}
			return freed
		case own.shown:
			delete(n.own, uid) // it was ours and is not any more
		}
	}
	if x == nil || x.owner != owner {
		x = &neighbour{about: aboutOf(job), owner: owner, order: n.order}
		if n.lanes[l] == nil {
			n.lanes[l] = map[string]*neighbour{}
		}
		n.lanes[l][uid] = x
	}
	x.version = version
	x.at, _ = strconv.ParseInt(api.Label(job, api.LabelClaim), 10, 64)
	return false
}

// list takes note that a list begins or ends to be shown. At its end everything
// is shown that was accepted before the own claims in it, and some that is later.
func (n *neighbours) list(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listing = on
	for _, own := range n.own {
		if !on && own.shown {
			n.know(own, true)
		}
	}
}

// know notes which claims were accepted before an own one.
func (n *neighbours) know(own *ownClaim, listed bool) {
	select {
	case <-own.known:
		return
	default:
	}
	for _, other := range n.lanes[own.lane] {
		own.before = append(own.before, *other)
	}
	shownInOrder(own.before)
	own.listed = listed
	close(own.known)
}

// gone takes note of a job that is deleted, and returns what see does.
func (n *neighbours) gone(job *unstructured.Unstructured) (freed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.end(job, true)
}

// end takes note of the end of a claim. A claim of this agent that the watch has
// not shown yet is still to come, unless the job is gone.
func (n *neighbours) end(job *unstructured.Unstructured, gone bool) (freed bool) {
	uid := api.Meta(job, "uid")
	if own := n.own[uid]; own != nil && (gone || own.shown) {
		n.know(own, false)
		delete(n.own, uid)
	}
	return n.remove(job)
}

func (n *neighbours) remove(job *unstructured.Unstructured) (freed bool) {
	l := laneOf(job)
	if _, ok := n.lanes[l][api.Meta(job, "uid")]; !ok {
		return false
	}
	delete(n.lanes[l], api.Meta(job, "uid"))
	if len(n.lanes[l]) == 0 {
		delete(n.lanes, l)
	}
	return n.lanes[l] == nil
}

// begin announces a claim that is about to be written.
func (n *neighbours) begin(uid, token string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own[uid] = &ownClaim{token: token, known: make(chan struct{})}
}

// withdraw forgets a claim that was not written.
func (n *neighbours) withdraw(uid, token string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if own := n.own[uid]; own != nil && own.token == token {
		delete(n.own, uid)
	}
}

// at returns the neighbours with a claim on a repository, in the order in which
// the watch has shown them.
func (n *neighbours) at(l lane) []neighbour {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []neighbour
	for uid, x := range n.lanes[l] {
		if !n.mine(uid, x.owner) {
			out = append(out, *x)
		}
	}
	return shownInOrder(out)
}

func shownInOrder(list []neighbour) []neighbour {
	sort.Slice(list, func(i, j int) bool { return list[i].order < list[j].order })
	return list
}

// shown returns an own claim. When the watch has shown its end already, it is
// one that the watch will never show.
func (n *neighbours) shown(uid, token string) *ownClaim {
	n.mu.Lock()
	defer n.mu.Unlock()
	if own := n.own[uid]; own != nil && own.token == token {
		return own
	}
	return &ownClaim{token: token, known: make(chan struct{})}
}

// earlier returns the claims that were accepted before an own one, which is known.
func (n *neighbours) earlier(own *ownClaim) []neighbour {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(own.before), func(x neighbour) bool { return n.mine(x.uid, x.owner) })
}
