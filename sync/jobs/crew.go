package jobs

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Agents that share a queue must not all reach for the same job: one would get
// it, and the others would have sent a claim for nothing. They do not talk to
// each other, but all of them see the same claims in the same order, and a claim
// tells which agent made it. From that each works out for itself in which order
// the agents come at a repository, and all come to the same order:
//
//   - first those that are ready, then those that are full, then those that are
//     passed over, and among equals by favour (order.go);
//   - full is who has had, for a head start (contention.go), as many claims as it was
//     ever seen to have at a time: nobody waits for an agent without a free driver.
//     While jobs are short a driver is free again before that;
//   - passed over for some time is who did nothing while an agent behind it claimed
//     a job: it is dead, or drains, or misses a credential. The time doubles with
//     each such job, so that a dead agent makes few jobs wait, and ends with its
//     next claim.
//
// The first agent claims at once. The one with k before it leaves the repository
// alone for log2(1+k) head starts, looks at the watch again, and claims what is
// still free: when the first does not come the second does, and of many that are
// further behind few go together. The order is one of repositories and not of jobs
// because agents exclude each other by repository: who had it last has its mirror,
// and of two claims there one would have to be given back.
//
// Only agents that were seen to claim what this one could have claimed count, and
// then by all their claims: nobody waits for those with another selector or other
// actions. Nor for Grafana's own drivers and older agents, which do not tell who
// they are and wait for nobody. An agent that has claimed nothing yet is not known
// to others, so it has to win a race to become one of them. There may be many like
// it, so it tries that one time in eight, for some time not at all when it has lost,
// and when all that are known are busy it waits for some time more, which is another
// one for each and short for few.

const (
	// firstAbsence and lastAbsence bound how long an agent is passed over.
	firstAbsence = time.Second
	lastAbsence  = 64 * time.Second
	// mostMissed is how many jobs an agent may let go before it is forgotten, which
	// takes ten minutes at least.
	mostMissed = 16
	// mostMates bounds how many agents are known. An agent has another name after
	// each start, and who is last at every repository lets none go.
	mostMates = 1 << 14
	// newcomerTries is one in how many times an agent tries its luck that is not
	// known to others.
	newcomerTries = 8
	// newcomers is the number of newcomers up to which few of them go together.
	newcomers = 256
)

// crew is what an agent knows of those that take jobs from the same queue,
// itself among them.
type crew struct {
	self string

	mu     sync.Mutex // guards everything below
	mates  map[string]*mate
	claims map[string]*mate // that are alive, by UID
	// turns are when this agent may claim at a repository, of those that it leaves
	// to others at the moment.
	turns   map[lane]time.Time
	listing bool // changes come from a list, in no order
	// former are the names that this agent had before its restart. Their claims are
	// its own now: it is not to wait for itself.
	former map[string]struct{}
}

// mate is one agent, as its claims show it.
type mate struct {
	name   string
	held   int       // claims
	seats  int       // most that it has held at a time; 0 = it is not known to others
	stirs  time.Time // when a claim of it began or ended last
	full   time.Time // since when it holds as many as it has seats; zero = it does not
	missed int       // jobs that it has let go since its last claim
	absent time.Time // until then it is passed over
}

func newCrew(self string) *crew {
	return &crew{self: self, mates: map[string]*mate{self: {name: self}}, claims: map[string]*mate{}, turns: map[lane]time.Time{}, former: map[string]struct{}{}}
}

// tokenOf makes the token of a claim. agent is fit for a label and has no dot;
// secret comes only once.
func tokenOf(agent, secret string) string { return tokenPrefix + agent + "." + secret }

// agentOf returns the agent that has made a claim; "" when the token does not
// tell, as those of Grafana's drivers do not.
func agentOf(token string) string {
	if rest, ok := strings.CutPrefix(token, tokenPrefix); ok {
		agent, _, _ := strings.Cut(rest, ".")
		return agent
	}
	return ""
}

const tokenPrefix = "limpet-"

// was takes note of a name of this agent before its restart. The watch may have
// shown its claims already.
func (c *crew) was(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if agent == c.self {
		return
	}
	c.former[agent] = struct{}{}
	delete(c.mates, agent)
	maps.DeleteFunc(c.claims, func(_ string, m *mate) bool { return m.name == agent })
}

// list takes note that a list begins or ends to be shown: the order of the claims
// in it says nothing.
func (c *crew) list(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listing = on
}

// begin takes note of a claim that is shown. within says that this agent could
// have made it.
func (c *crew) begin(uid, agent string, l lane, within bool, now time.Time, head time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.claims[uid]; m != nil && m.name == agent {
		return
	}
	c.drop(uid, now)
	delete(c.turns, l)
	m := c.mates[agent]
	if _, own := c.former[agent]; own || agent == "" || m == nil && !within {
		return
	}
	if m == nil {
		c.forget(mostMates - 1)
		m = &mate{name: agent}
		c.mates[agent] = m
	}
	for _, other := range c.mates {
		if c.listing || other == m || !other.idle(now, head) || !other.before(m, l, now, head) {
			continue
		}
		if other.miss(now); other.missed > mostMissed && other.name != c.self {
			delete(c.mates, other.name)
		}
	}
	m.missed, m.absent, m.stirs = 0, time.Time{}, now
	if m.held++; m.held >= m.seats {
		m.seats, m.full = m.held, now
	}
	c.claims[uid] = m
}

// forget makes room: of more agents than most those go first that have done nothing
// for longest.
func (c *crew) forget(most int) {
	for len(c.mates) > most {
		var idle *mate
		for _, m := range c.mates {
			if m.name != c.self && m.held == 0 && (idle == nil || m.stirs.Before(idle.stirs)) {
				idle = m
			}
		}
		if idle == nil {
			return
		}
		delete(c.mates, idle.name)
	}
}

// leave takes note that this agent leaves what there is at a repository for later:
// then it asks anew whether others come first.
func (c *crew) leave(l lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.turns, l)
}

// end takes note that nobody has a claim on a job any more. gone says that
// nobody can make one.
func (c *crew) end(uid string, l lane, gone bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now)
	if gone {
		delete(c.turns, l)
	}
}

func (c *crew) drop(uid string, now time.Time) {
	if m := c.claims[uid]; m != nil {
		delete(c.claims, uid)
		m.held--
		m.full, m.stirs = time.Time{}, now
	}
}

// lose takes note of a claim of this agent that came too late. While others do
// not know it they do not leave it time, so it passes itself over.
func (c *crew) lose(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.mates[c.self]; m.seats == 0 {
		m.miss(now)
	}
}

// hesitation returns how much longer this agent leaves a free repository to
// others; 0 or less = it may claim. The time runs from the first call on, until a
// claim there is shown.
func (c *crew) hesitation(l lane, now time.Time, head time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn, ok := c.turns[l]; ok {
		return turn.Sub(now)
	}
	d := behind(c.ahead(l, now, head), head)
	if self := c.mates[c.self]; d > 0 && self.seats == 0 {
		d += self.apart(l, now, head)
	}
	if d > 0 {
		c.turns[l] = now.Add(d)
	}
	return d
}

// behind is how long an agent waits that has k others before it.
func behind(k int, head time.Duration) time.Duration {
	return time.Duration(math.Log2(float64(1+k)) * float64(head))
}

// ahead returns how many agents come before this one at a repository.
func (c *crew) ahead(l lane, now time.Time, head time.Duration) (n int) {
	self := c.mates[c.self].atWork()
	if self.seats == 0 {
		self.shy(l, now)
	}
	for _, m := range c.mates {
		if m.name != c.self && m.before(self, l, now, head) {
			n++
		}
	}
	return n
}

// atWork is how an agent sees itself: it asks with a free driver, so it is not full.
func (m *mate) atWork() *mate {
	free := *m
	free.full = time.Time{}
	return &free
}

// shy has a newcomer pass itself over but for one question in newcomerTries.
func (m *mate) shy(l lane, now time.Time) {
	if m.chance("shy", l, now)%newcomerTries != 0 {
		m.absent = now.Add(1)
	}
}

// apart is how much longer a newcomer waits than others at its place: up to
// newcomerTries head starts, with as few early ones among 256 as among 2.
func (m *mate) apart(l lane, now time.Time, head time.Duration) time.Duration {
	u := float64(m.chance("apart", l, now)>>11) / (1 << 53)
	return time.Duration(math.Log1p(u*(newcomers-1)) / math.Log(newcomers) * float64(min(newcomerTries*head, maxHead)))
}

// chance is a number by lot for a question of an agent. It depends on nothing but
// the question, so drivers that ask at one moment may do so in any order.
func (m *mate) chance(question string, l lane, now time.Time) uint64 {
	return hashOf(m.name, question, l.Namespace, l.Repository, strconv.FormatInt(now.UnixNano(), 36))
}

// class is what counts before favour.
type class int8

const (
	ready class = iota
	full
	passedOver
)

func (m *mate) class(now time.Time, head time.Duration) class {
	switch {
	case now.Before(m.absent):
		return passedOver
	case !m.full.IsZero() && now.Sub(m.full) >= head:
		return full
	}
	return ready
}

// before says whether m comes before x at a repository.
func (m *mate) before(x *mate, l lane, now time.Time, head time.Duration) bool {
	if c, d := m.class(now, head), x.class(now, head); c != d {
		return c < d
	}
	return favour(m.name, l) > favour(x.name, l)
}

// idle says whether an agent would have come for a job: it has seats free, and
// none of its claims has begun or ended for a head start, so it is not busy with
// others.
func (m *mate) idle(now time.Time, head time.Duration) bool {
	return m.held < m.seats && now.Sub(m.stirs) >= head && m.class(now, head) == ready
}

func (m *mate) miss(now time.Time) {
	m.absent = now.Add(min(firstAbsence<<min(m.missed, mostMissed), lastAbsence))
	m.missed++
}
