// Package members knows which agents look after the objects of an API, and which
// of them looks after a given one.
//
// Each agent keeps a Lease. Everybody sees all of them and comes to the same
// answer by rendezvous hashing, so that nothing has to be agreed on: an agent that
// comes or goes moves its own share only. An agent that cannot renew its Lease
// stops at two thirds of the time after which others take over.
//
// Two agents may think for the length of a watch event that an object is theirs.
// That is why what they write must name the version that it was made for.
package members

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/kube"
)

var leases = schema.GroupVersionResource{Group: api.CoordinationGroup, Version: "v1", Resource: "leases"}

// Durations of a Lease. Source: a third of an expiry of a minute, so that two
// renewals may fail; client-go's leader election has the same relations.
const (
	DefaultExpiry = 60 * time.Second
	DefaultRenew  = 20 * time.Second
	// settle is how long a new member waits before it acts: the others have to see
	// that it has come, and stop.
	settle = 3 * time.Second
	// tidyAfter is how long a Lease may be dead before a member deletes it.
	tidyAfter = time.Hour
)

// Options of Members. Namespace, ID, Agent and Logger must be set.
type Options struct {
	Namespace string // of the Leases
	ID        string // of this agent, other than that of any other one, the same after a restart
	Agent     string // its name, for people
	Scope     Scope  // what it looks after
	Expiry    time.Duration
	Renew     time.Duration
	// Changed is called when the members have changed. It must be quick; nil = nobody.
	Changed func()
	Logger  *slog.Logger
}

// store is what this room needs of the API, for Leases of one namespace.
type store interface {
	get(ctx context.Context, name string) (*unstructured.Unstructured, error)
	create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
	update(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
	remove(ctx context.Context, u *unstructured.Unstructured) error
	// watch tells of all Leases with the role, first of those that are there, and
	// then calls synced, until ctx ends.
	watch(ctx context.Context, seen, gone func(*unstructured.Unstructured), synced func()) error
}

// Members is the agents of one namespace of Leases. Make it with New, then Run it,
// again after it has returned if need be.
type Members struct {
	o       Options
	name    string // of the own Lease
	process string // holder of it: this process
	store   store
	now     func() time.Time // of the server, for the stamps

	lease *unstructured.Unstructured // the own one as the last renewal has left it, nil = to be read; belongs to Run

	mu        sync.Mutex // guards what follows
	roll      *roll
	synced    bool
	alone     bool      // the API has no Leases
	held      bool      // this process has had the Lease
	joined    time.Time // when this agent came, as seen by itself
	confirmed time.Time // when the last renewal was sent that succeeded; zero = none, or it was taken away
	wall      time.Time // the same by the wall clock alone
	turn      int64     // of the holders of the Lease, that of this process
	again     chan struct{}
	told      string // who may act, as told last
	refused   bool   // somebody asked while this agent might not act
}

// New returns the members as an agent with these options sees them. It asks
// nobody.
func New(c *kube.Client, o Options) *Members {
	now := func() time.Time {
		if t, _, ok := c.Clock().Now(); ok {
			return t
		}
		return time.Now()
	}
	return newMembers(wire{c, o.Namespace}, now, o)
}

func newMembers(s store, now func() time.Time, o Options) *Members {
	if o.Expiry <= 0 {
		o.Expiry = DefaultExpiry
	}
	if o.Renew <= 0 {
		o.Renew = DefaultRenew
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return &Members{o: o, name: leaseName(o.ID), process: fmt.Sprintf("%s_%x", o.Agent, rand.Uint64()), store: s, now: now, roll: newRoll(), again: make(chan struct{}, 1)}
}

// Mine says whether this agent looks after an object now. It never blocks. It is
// false while this agent does not know, and always true on an API without Leases.
func (m *Members) Mine(namespace, name string, labels map[string]string) bool {
	return m.mine(namespace, name, func(s Scope) bool { return s.holds(namespace, labels) })
}

// MineUnlabelled is Mine for an object that selectors say nothing about.
func (m *Members) MineUnlabelled(namespace, name string) bool {
	return m.mine(namespace, name, func(s Scope) bool { return s.Namespace == "" || s.Namespace == namespace })
}

func (m *Members) mine(namespace, name string, could func(Scope) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.alone {
		return true
	}
	now := time.Now()
	if !m.holds(now) {
		m.refused = true
		return false
	}
	return m.roll.keeper(now, namespace, name, could) == m.name
}

// holds says that this agent is a member and may act.
func (m *Members) holds(now time.Time) bool {
	return m.synced && !m.joined.IsZero() && m.fresh(now) && (now.Sub(m.joined) >= settle || m.roll.count(now) == 1)
}

// fresh says that others still believe in this agent. The monotonic clock stands
// still while a host sleeps, so the wall clock has a say too: at worst it is wrong
// until the next renewal.
func (m *Members) fresh(now time.Time) bool {
	limit := m.o.Expiry * 2 / 3
	return now.Sub(m.confirmed) < limit && now.Round(0).Sub(m.wall) < limit
}

// Here lists the members by their names for people, this agent included, and says
// whether the API has Leases at all.
func (m *Members) Here() (agents []string, served bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, s := range m.roll.seen {
		if s.live(now) {
			agents = append(agents, s.agent)
		}
	}
	return agents, !m.alone
}

// Run keeps the Lease of this agent and watches the others, until ctx ends; then
// it gives the Lease back, so that others take over at once, and nothing is this
// agent's any more. It returns nil.
func (m *Members) Run(ctx context.Context) error {
	defer m.resign(ctx)
	watching, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	if !m.join(ctx) {
		return nil
	}
	all.Go(func() { _ = m.store.watch(watching, m.saw, m.lost, m.sync) })
	all.Go(func() { m.changes(watching) })
	tick := time.NewTicker(m.o.Renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.leave(ctx)
			return nil
		case <-tick.C:
		}
		if err := m.renew(ctx); err != nil && ctx.Err() == nil {
			m.o.Logger.Warn("cannot renew the lease of this agent", "lease", m.name, "err", err)
		}
		m.tidy(ctx)
	}
}

func (m *Members) saw(u *unstructured.Unstructured) {
	rec, ok := read(u)
	if !ok {
		m.lost(u)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if rec.name == m.name && m.held && rec.holder != m.process && rec.turn > m.turn {
		m.confirmed = time.Time{} // another process has the Lease: two must not act in its name
	}
	if m.roll.note(rec, time.Now()) {
		m.wake()
	}
}

func (m *Members) lost(u *unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.roll.drop(u.GetName()) {
		m.wake()
	}
}

func (m *Members) sync() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = true
	m.wake()
}

// wake has changes look again. It never blocks.
func (m *Members) wake() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// changes tells of members that have come, gone or expired, and of the moment from
// which this agent may act.
func (m *Members) changes(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		m.mu.Lock()
		now := time.Now()
		next := m.roll.expires(now)
		if begins := m.joined.Add(settle); !m.joined.IsZero() && begins.After(now) && (next.IsZero() || begins.Before(next)) {
			next = begins
		}
		m.mu.Unlock()
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-m.again:
			m.news()
		case <-timer.C:
			if !m.news() {
				continue // who would have expired has renewed its Lease
			}
		}
		m.o.Changed()
	}
}

// news says that who may act is not who was told of last, or that this agent was
// asked while it might not: that has to be asked again.
func (m *Members) news() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	standing := fmt.Sprint(m.holds(now), m.roll.names(now))
	if standing == m.told && !m.refused {
		return false
	}
	m.told, m.refused = standing, false
	return true
}

// tidy deletes a Lease whose agent has been gone for long.
func (m *Members) tidy(ctx context.Context) {
	m.mu.Lock()
	dead := ""
	for name, s := range m.roll.seen {
		if time.Since(s.at) > s.expiry+tidyAfter {
			dead = name
		}
	}
	m.mu.Unlock()
	if dead == "" {
		return
	}
	u, err := m.store.get(ctx, dead)
	if err == nil {
		m.mu.Lock()
		same := m.roll.seen[dead].version == u.GetResourceVersion()
		m.mu.Unlock()
		if same {
			err = m.store.remove(ctx, u)
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		m.o.Logger.Debug("cannot delete the lease of an agent that is gone", "lease", dead, "err", err)
	}
}
