package neighbour

import "time"

// Times are how long a Watch has patience. The zero value is the default of each.
type Times struct {
	// Silence is after what time a neighbour that writes nothing is gone.
	Silence time.Duration
	// Grace is how long an object may wait for its controller before limpet is it,
	// and GraceGrafana the same on an API of Grafana's own.
	Grace, GraceGrafana time.Duration
	// Late is by how much limpet's checks come after those that a neighbour would
	// make, so that one that has come back is the first and is seen.
	Late time.Duration
}

// Defaults. Source: Grafana's controllers look at each of their objects at least
// every five minutes, and at each change within seconds; their resync is 60 s.
const (
	silence      = 11 * time.Minute // twice five, and the resync
	grace        = 2 * time.Minute
	graceGrafana = 15 * time.Minute // it nearly always has controllers: let it start
	late         = 90 * time.Second // the resync, and time to work
)

func (t Times) filled() Times {
	for _, f := range []struct {
		at    *time.Duration
		value time.Duration
	}{{&t.Silence, silence}, {&t.Grace, grace}, {&t.GraceGrafana, graceGrafana}, {&t.Late, late}} {
		if *f.at <= 0 {
			*f.at = f.value
		}
	}
	return t
}

// Phase is what an agent does about Repositories and Connections.
type Phase int

// Phases.
const (
	Waiting Phase = iota // to see whether somebody looks after them
	Passive              // somebody else does
	Active               // this agent does
)

// String is the name for people and for the view.
func (p Phase) String() string { return [...]string{"waiting", "passive", "active"}[p] }

// facts is what is known; all times are of one clock.
type facts struct {
	now   time.Time
	blind time.Time // when the API could not be seen last; the start of the agent, at first
	phase Phase     // so far

	foreign time.Time // last sign of a neighbour; zero = none
	own     time.Time // last sign of a limpet
	first   time.Time // when the oldest object was made; zero = there is none
	grace   time.Duration
	silence time.Duration
}

// decide says what an agent does, and when something else follows from the same
// facts; zero = never.
//
// What nobody could see does not count as silence, and who has looked after objects
// goes on until a neighbour writes.
func decide(f facts) (phase Phase, until time.Time, why string) {
	if end := latest(f.foreign, f.blind).Add(f.silence); !f.foreign.IsZero() {
		if fresh := f.now.Sub(f.foreign) < f.silence; fresh || f.phase == Passive && f.now.Before(end) {
			return Passive, end, ""
		}
	}
	if f.phase == Active {
		return Active, time.Time{}, ""
	}
	if !f.own.IsZero() && f.now.Sub(f.own) < f.silence {
		return Active, time.Time{}, "limpet does, and nobody else"
	}
	if f.first.IsZero() {
		return Waiting, time.Time{}, ""
	}
	if f.phase == Passive {
		return Active, time.Time{}, "the other controller has fallen silent"
	}
	if end := latest(f.first, f.blind).Add(f.grace); f.now.Before(end) {
		return Waiting, end, ""
	}
	return Active, time.Time{}, "nobody else does"
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
