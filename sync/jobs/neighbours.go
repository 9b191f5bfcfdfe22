package jobs

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// Two agents must not work on one repository at the same time, whatever the two
// jobs are. Inside an agent the lanes of the queue see to that. Between agents
// there is no lock, only the claims, which everybody can see. So it goes as in
// Dekker's algorithm: first write the own claim, then read the claims of others.
//
//	Before a claim   While the watch shows a live claim of a neighbour on the
//	                 repository, the whole lane rests, until the watch shows its
//	                 end. No request is spent on it.
//	After a claim    The agent waits until the watch shows its own claim. The
//	                 watch delivers writes in the order in which the server has
//	                 accepted them, so at that moment it has shown every claim
//	                 that was accepted before. If there is a live one, its owner
//	                 goes on and this agent gives its job back. If there is none,
//	                 this claim is the first one, and who comes later sees it.
//
// Of two claims one was accepted first, and both agents agree which, because
// they go by the server's order and not by clocks: exactly one of them gives
// way, so nothing is blocked for ever and nothing runs together. Claim times
// would not do: an agent whose claim arrived late with an early time in it would
// go on beside another that had looked before it arrived.
//
// The cost is no request where the watch works. When it is behind by more than
// watchPatience, the claims are listed instead (one request per 100 of them);
// then the order is not known, and every live claim of a neighbour counts as
// earlier. Two agents may then both give way. Who gave way rests for a time of
// its own, so they do not meet again for ever.
//
// The one that gave way is not starved either: its job keeps its place in the
// queue, and each time it gives way another job of the repository is done.
//
// A claim counts as long as its lease lasts by the server's clock. So the
// exclusion is as good as the lease: an owner stops at two thirds of the expiry.
// Grafana's own drivers follow no such rule; their claims are respected here, but
// they do not respect ours.

// watchPatience is how long the watch may be behind before the claims are
// listed. A watch that works shows a write within milliseconds.
const watchPatience = 250 * time.Millisecond

// giveWay is the longest rest of a job whose agent has given way.
const giveWay = 2 * time.Second

// neighbours are the claims of other agents, as the watch shows them.
type neighbours struct {
	mine func(uid, owner string) bool // claims of this agent that are not in own

	mu    sync.Mutex // guards everything below
	lanes map[lane]map[string]*neighbour
	own   map[string]*ownClaim // by UID, from before the claim until the watch shows its end
	order int                  // of what was shown, as a number that only grows
}

// neighbour is a claim of another agent.
type neighbour struct {
	about
	owner   string
	at      int64 // of the claim, in milliseconds; 0 = not readable
	order   int   // when the watch has shown it first
	version uint64
	latest  uint64 // version that was shown last
	// certain says that version is that of the claim itself. Otherwise the watch
	// was interrupted and the claim is older.
	certain bool
}

// ownClaim is a claim of this agent and what the watch had shown before it.
type ownClaim struct {
	token  string
	seen   chan struct{} // closed when the watch has shown it
	order  int           // when that was; 0 = not yet
	before []neighbour   // the claims on the same repository at that moment
}

func newNeighbours(mine func(uid, owner string) bool) *neighbours {
	return &neighbours{mine: mine, lanes: map[lane]map[string]*neighbour{}, own: map[string]*ownClaim{}}
}

// see takes note of a job; old is how it was shown before, or nil. It returns
// true when the last claim of a neighbour on the repository has ended.
func (n *neighbours) see(old, job *unstructured.Unstructured) (freed bool) {
	uid, owner := string(job.GetUID()), job.GetLabels()[api.LabelClaimOwner]
	version, unordered := strconv.ParseUint(job.GetResourceVersion(), 10, 64)
	l := laneOf(job)
	n.mu.Lock()
	defer n.mu.Unlock()
	if old != nil && laneOf(old) != l {
		n.remove(old)
	}
	x := n.lanes[l][uid]
	if x != nil && version < x.latest {
		return false // an old picture
	}
	if !claimed(job) {
		return n.end(job, false)
	}
	n.order++
	if own := n.own[uid]; own != nil {
		switch {
		case own.token == owner:
			if own.order == 0 {
				own.order = n.order
				for _, other := range n.lanes[l] {
					own.before = append(own.before, *other)
				}
				close(own.seen)
			}
			return n.remove(job)
		case own.order > 0:
			delete(n.own, uid) // it was ours and is not any more
		}
	}
	if x == nil || x.owner != owner {
		x = &neighbour{about: aboutOf(job), owner: owner, order: n.order, version: version, certain: unordered == nil && nextWrite(old, job)}
		if n.lanes[l] == nil {
			n.lanes[l] = map[string]*neighbour{}
		}
		n.lanes[l][uid] = x
	}
	x.latest = version
	x.at, _ = strconv.ParseInt(job.GetLabels()[api.LabelClaim], 10, 64)
	return false
}

// nextWrite says whether nothing can have been written between old and job but
// one claim: the counter of status writes has grown by at most that one.
func nextWrite(old, job *unstructured.Unstructured) bool {
	was := int64(0)
	if old != nil && old.GetUID() == job.GetUID() {
		was = statusWrites(old)
	}
	return statusWrites(job)-was <= 1
}

func statusWrites(job *unstructured.Unstructured) int64 {
	status, _ := job.Object["status"].(map[string]any)
	return updates(status["progressUpdates"])
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
	uid := string(job.GetUID())
	if own := n.own[uid]; own != nil && (gone || own.order > 0) {
		if own.order == 0 {
			own.order = n.order
			close(own.seen)
		}
		delete(n.own, uid)
	}
	return n.remove(job)
}

func (n *neighbours) remove(job *unstructured.Unstructured) (freed bool) {
	l := laneOf(job)
	if _, ok := n.lanes[l][string(job.GetUID())]; !ok {
		return false
	}
	delete(n.lanes[l], string(job.GetUID()))
	if len(n.lanes[l]) == 0 {
		delete(n.lanes, l)
	}
	return n.lanes[l] == nil
}

// begin announces a claim that is about to be written.
func (n *neighbours) begin(uid, token string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own[uid] = &ownClaim{token: token, seen: make(chan struct{})}
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
	slices.SortFunc(list, func(a, b neighbour) int { return a.order - b.order })
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
	return &ownClaim{token: token, seen: make(chan struct{})}
}

// earlier returns the claims on a repository that were accepted before an own
// one, which the watch has shown. version is that of the own claim.
func (n *neighbours) earlier(l lane, own *ownClaim, version string) []neighbour {
	mine, err := strconv.ParseUint(version, 10, 64)
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []neighbour
	for _, x := range own.before {
		if !n.mine(x.uid, x.owner) {
			out = append(out, x)
		}
	}
	for uid, x := range n.lanes[l] {
		// What was shown later was accepted later, unless the watch was interrupted
		// and a list has shown both.
		if x.order > own.order && !n.mine(uid, x.owner) && (err != nil || !x.certain || x.version < mine) {
			out = append(out, *x)
		}
	}
	return shownInOrder(out)
}

// alive returns how much longer the lease of a neighbour may last; 0 or less
// when it is over. A claim that cannot be compared does not bind anybody.
func (c *Controller) alive(x neighbour) time.Duration {
	now, err := c.millis()
	if err != nil {
		return c.o.Expiry
	}
	if x.at-now > c.o.Expiry.Milliseconds() {
		return 0
	}
	return time.Duration(x.at-now)*time.Millisecond + c.o.Expiry + c.terms.clockError()
}

// occupied returns how long a repository is taken by a neighbour at least,
// unless the watch shows the end of it; 0 = it is free.
func (c *Controller) occupied(l lane) time.Duration {
	if l.Repository == "" {
		return 0
	}
	rest := time.Duration(0)
	for _, x := range c.neighbours.at(l) {
		rest = max(rest, c.alive(x))
	}
	return min(rest, c.o.Interval)
}

// rival is a neighbour that was first on a repository.
type rival struct {
	job string
	// listed says that the order of the claims is not known, so that the rival may
	// give way at the same time.
	listed bool
}

// firstHere returns nil when a claim that was just written is the first live one
// on its repository, else who was first. An error says that the job is not ours
// any more before that was known.
func (c *Controller) firstHere(h *held) (*rival, error) {
	l := lane{h.Namespace, h.repository}
	if l.Repository == "" {
		return nil, nil
	}
	own := c.neighbours.shown(h.uid, h.token)
	for patience := watchPatience; ; {
		timer := time.NewTimer(patience)
		select {
		case <-own.seen:
			timer.Stop()
			return c.shownRival(h, l, own), nil
		case <-h.ctx.Done():
			timer.Stop()
			return nil, context.Cause(h.ctx)
		case <-timer.C:
		}
		r, err := c.listedRival(h.ctx, l)
		if err == nil {
			return r, nil
		}
		patience = max(min(2*patience, giveWay), c.asked(err))
	}
}

// shownRival asks the watch, which has shown the own claim.
func (c *Controller) shownRival(h *held, l lane, own *ownClaim) *rival {
	h.mu.Lock()
	version := h.claim.ResourceVersion
	h.mu.Unlock()
	for _, x := range c.neighbours.earlier(l, own, version) {
		if c.alive(x) > 0 {
			return &rival{job: x.String()}
		}
	}
	return nil
}

// replacedBy returns the neighbour that works on the repository of a job that is
// taken up again, or nil. The claims are listed, because the watch says nothing of
// the order of old claims: somebody may have begun after this one had expired,
// before its request arrived, or before this agent, which then stopped, could look.
func (c *Controller) replacedBy(h *held) (*rival, error) {
	if h.repository == "" {
		return nil, nil
	}
	for try := 1; ; try++ {
		r, err := c.listedRival(h.ctx, lane{h.Namespace, h.repository})
		if err == nil {
			return r, nil
		}
		if h.ctx.Err() != nil {
			return nil, context.Cause(h.ctx)
		}
		pause(h.ctx, max(c.asked(err), retryDelay(try)))
	}
}

// listedRival asks the API for a live claim of a neighbour on a repository.
func (c *Controller) listedRival(ctx context.Context, l lane) (*rival, error) {
	now, err := c.millis()
	if err != nil {
		return nil, err
	}
	for page := ""; ; {
		jobs, next, err := c.server.expiredJobs(ctx, l.Namespace, now+c.o.Expiry.Milliseconds(), page)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			job := &jobs[i]
			if laneOf(job) != l || !claimed(job) || c.isOwn(string(job.GetUID())) {
				continue
			}
			at, _ := strconv.ParseInt(job.GetLabels()[api.LabelClaim], 10, 64)
			if c.alive(neighbour{at: at}) > 0 {
				return &rival{job: keyOf(job).String(), listed: true}, nil
			}
		}
		if page = next; page == "" {
			return nil, nil
		}
	}
}

// yield gives a job back whose repository a neighbour had claimed before. It is
// no attempt. The lane rests until the neighbour is done; where both may have
// given way the job rests for a while too, each time another one.
func (c *Controller) yield(h *held, to *rival) verdict {
	var bar time.Duration
	if to.listed {
		bar = time.Duration(hashOf(c.o.Agent, h.token) % uint64(giveWay))
	}
	v, given := c.giveBack(h, func(job *unstructured.Unstructured) {
		setAnnotation(job, api.AnnoNotBefore, strconv.FormatInt(c.nowMillis()+bar.Milliseconds(), 10))
	})
	if !given {
		return v
	}
	c.dropClaim(context.WithoutCancel(h.ctx), h)
	c.tell(EventReleased, h.about, "another agent works on the repository: it has job "+to.job)
	return verdict{again: true, calm: true, bar: bar, rest: max(time.Millisecond, c.occupied(lane{h.Namespace, h.repository}))}
}
