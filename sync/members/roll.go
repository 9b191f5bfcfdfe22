package members

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Scope is what an agent looks after: objects of one namespace, "" = all, whose
// labels fit a selector, nil = all.
type Scope struct {
	Namespace string
	Selector  labels.Selector
}

func (s Scope) holds(namespace string, set map[string]string) bool {
	return (s.Namespace == "" || s.Namespace == namespace) && (s.Selector == nil || s.Selector.Matches(labels.Set(set)))
}

// record is what a Lease says of an agent.
type record struct {
	name    string // of the Lease: one for each agent
	agent   string // its name, for people
	holder  string // its process
	turn    int64  // counts the processes that have held it
	version string // of the object: changes with each renewal
	expiry  time.Duration
	scope   Scope
}

// roll is the list of agents. It is told the time and does no I/O. As in
// client-go's leader election the time of a renewal is when its change was seen
// here, not what the Lease says: clocks of hosts are not compared.
type roll struct {
	seen map[string]sighting
}

type sighting struct {
	record
	at time.Time // of the last change, monotonic
}

func newRoll() *roll { return &roll{map[string]sighting{}} }

// note takes in a Lease as it is now, and says whether the agents have changed.
func (r *roll) note(rec record, now time.Time) (changed bool) {
	was, known := r.seen[rec.name]
	if known && was.version == rec.version {
		return false
	}
	changed = !known || !was.live(now) || was.scope.Namespace != rec.scope.Namespace || text(was.scope.Selector) != text(rec.scope.Selector)
	r.seen[rec.name] = sighting{rec, now}
	return changed
}

// drop takes an agent off, and says whether it was there.
func (r *roll) drop(name string) bool {
	_, was := r.seen[name]
	delete(r.seen, name)
	return was
}

func (s sighting) live(now time.Time) bool { return now.Sub(s.at) < s.expiry }

// count is how many agents are there.
func (r *roll) count(now time.Time) (n int) {
	for _, s := range r.seen {
		if s.live(now) {
			n++
		}
	}
	return n
}

// names are the Leases of the agents that are there, sorted.
func (r *roll) names(now time.Time) (names []string) {
	for _, s := range r.seen {
		if s.live(now) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

// expires is when the next of the agents that are there would be gone.
func (r *roll) expires(now time.Time) (next time.Time) {
	for _, s := range r.seen {
		if end := s.at.Add(s.expiry); s.live(now) && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return next
}

// keeper names the agent that looks after an object among those that are there
// and whose scope could have it; "" when none is. Every agent with the same roll names the same one,
// and an agent that comes or goes changes nothing for the objects of others:
// rendezvous hashing.
func (r *roll) keeper(now time.Time, namespace, name string, could func(Scope) bool) (keeper string) {
	var most uint64
	for _, s := range r.seen {
		if !s.live(now) || !could(s.scope) {
			continue
		}
		if w := weight(s.name, namespace, name); keeper == "" || w > most || w == most && s.name < keeper {
			keeper, most = s.name, w
		}
	}
	return keeper
}

// weight is how much an agent wants an object: the same number on every host.
func weight(agent, namespace, name string) uint64 {
	sum := sha256.Sum256([]byte(agent + "\x00" + namespace + "\x00" + name))
	return binary.BigEndian.Uint64(sum[:])
}

func text(s labels.Selector) string {
	if s == nil {
		return ""
	}
	return s.String()
}
