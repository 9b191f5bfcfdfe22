package jobs

import "time"

// The queue holds names of jobs, never objects, and knows neither goroutines
// nor clocks: every call is told the time. Its laws:
//
//   - A name is in it at most once. A name that is added while its job runs is
//     looked at again when the run is over.
//   - Names of one repository form a lane. A lane is served by one driver at a
//     time, so two jobs of one repository never run together in this agent.
//   - A lane that rests (another agent works on the repository) is not served
//     before its time or before it is freed, but for own claims.
//   - A barred name is not served before its time, whoever adds it.
//   - Names with a claim of this agent to settle are urgent: they go first.
//   - A higher priority goes first, among the names of a lane and among lanes,
//     where a lane counts as its best name.
//   - Lanes of equal priority take turns, in rounds: each is served once in a
//     round, and who comes into turn joins the next round. So a repository with
//     ten thousand jobs delays the single job of another one by two jobs at most.
//     Within a round the order is the agent's own (order.go).
//   - Waiting makes old, and age beats rank: of every four takes one serves the
//     name that has waited longest of all whose lanes are free, and of every four
//     takes from one lane one serves its oldest name. Urgent takes do not count.
//
// So nothing starves. Let o be the names that came before a name, and m those of
// them in its own lane. Of the takes that are made while its lane is free, every
// fourth serves one of the o or the name itself: it waits for 4(o+1) such takes
// at most. Where the lane is never free at the right moment, it is because it is
// served, and of these takes every fourth serves one of the m or the name
// itself: it waits for 4(m+1) of them at most. Neither number depends on what
// comes later, whatever its priority. A name that comes back is as new as any
// other, so that no name is one of the o twice; only one that was taken in vain
// (its lane has to rest) keeps its age and counts once more for each such take.

// maxTries is how often in a row a name may fail on its way to a claim before
// it is left to the next periodic list. Source: Grafana's driver.
const maxTries = 3

// agedShare is one in how many takes goes by age instead of by rank.
const agedShare = 4

// key names a job. Names are reused, so a key never identifies one.
type key struct{ Namespace, Name string }

func (k key) String() string { return k.Namespace + "/" + k.Name }

// lane names the repository whose jobs exclude each other.
type lane struct{ Namespace, Repository string }

type place int8

const (
	waiting place = iota // in its lane
	running              // taken by a driver
	barred               // in later, until its time has come
)

// slot is what the queue knows of one name.
type slot struct {
	key   key
	lane  lane
	place place
	// wanted says that the name has to be looked at again: after the run for a
	// running one, after the bar for a barred one.
	wanted bool
	// urgent names go before the others of their lane and are never given up.
	urgent bool
	// hurried says that somebody is in a hurry for a running name: it is not barred
	// when it comes back.
	hurried  bool
	priority int8
	tries    int32
	arrival  uint64        // when the name came, as a number that only grows
	until    time.Time     // of the bar
	since    time.Duration // when it came to wait, as came counts
	ranked   int           // place in the slots of its line, or in later
	aged     int           // place in the old of its line
}

// line is a lane with its waiting names.
type line struct {
	lane   lane
	slots  pile[slot] // by rank
	old    pile[slot] // the same ones by age
	busy   bool       // a driver has one of its names
	takes  int        // since its oldest name was taken
	class  int8       // priority of its best name when it came into turn
	round  uint64     // of its class
	favour uint64
	until  time.Time // of the rest; meaningless when it does not rest

	ranked, aged, resting int // places in the piles of the queue
}

type queue struct {
	slots map[key]*slot
	lines map[lane]*line
	// turn has the lines that are neither busy nor empty nor at rest, by rank,
	// and old the same ones by age. A line at rest is in turn while its best name
	// is urgent.
	turn, old pile[line]
	later     pile[slot] // barred names
	resting   pile[line]
	rounds    [highest + 1]uint64 // the round that is served, by priority
	takes     int                 // since the oldest name was taken
	arrivals  uint64
	limit     int
	refused   int // names refused since the last call of overflow
	// reserve, outside and hungry: see room.go.
	reserve int
	outside map[lane]struct{} // lanes with jobs that were not taken in
	hungry  bool
	// favour orders lanes within a round; nil = by arrival.
	favour func(lane) uint64
	// came is told when a name comes to wait in its lane; nil = nobody is.
	came func(*slot)
}

func newQueue(limit int) *queue {
	return &queue{slots: map[key]*slot{}, lines: map[lane]*line{}, limit: limit,
		turn: rankedLines(), old: agedLines(), later: barredSlots(), resting: restingLines()}
}

// add brings a name in, with a priority from 0 to 9 or unranked. It returns
// false when the queue is full. For a name that is known a new priority takes
// effect at once.
func (q *queue) add(k key, l lane, urgent bool, priority int) bool {
	s := q.slots[k]
	if s == nil {
		if !urgent && !q.admits(l, priority) {
			return false
		}
		s = q.newSlot(k, l, priority)
		s.urgent = urgent
		q.wait(s)
		return true
	}
	if priority != unranked {
		s.priority = int8(priority)
	}
	s.urgent = s.urgent || urgent
	if s.place == waiting {
		q.wait(s)
	} else {
		s.wanted = true
	}
	return true
}

// addAt brings a name in that must not be served before a time. A name that
// already waits or runs is not held back.
func (q *queue) addAt(k key, l lane, until time.Time, priority int) bool {
	if q.slots[k] != nil {
		return q.add(k, l, false, priority)
	}
	if !q.admits(l, priority) {
		return false
	}
	s := q.newSlot(k, l, priority)
	s.wanted = true
	q.bar(s, until)
	return true
}

// hurry brings a name in and ends its bar, also the one that a running name is
// about to get.
func (q *queue) hurry(k key, l lane) {
	s := q.slots[k]
	if s != nil && s.place == barred {
		q.later.take(s)
		q.wait(s)
		return
	}
	if s != nil && s.place == running {
		s.hurried = true
	}
	q.add(k, l, false, unranked)
}

func (q *queue) newSlot(k key, l lane, priority int) *slot {
	if priority == unranked {
		priority = ordinary
	}
	q.arrivals++
	s := &slot{key: k, lane: l, priority: int8(priority), arrival: q.arrivals, ranked: absent, aged: absent}
	q.slots[k] = s
	return s
}

// next takes the name whose turn it is.
func (q *queue) next(now time.Time) (key, lane, bool) {
	q.promote(now)
	ln := q.turn.first()
	if ln == nil {
		return key{}, lane{}, false
	}
	s := ln.slots.first()
	if !s.urgent {
		ln, s = q.pick(ln)
	}
	ln.slots.take(s)
	ln.old.take(s)
	ln.busy = true
	q.settle(ln)
	s.place, s.wanted, s.hurried = running, false, false
	return s.key, s.lane, true
}

// pick chooses by rank or by age. best is the line that is first by rank.
func (q *queue) pick(best *line) (*line, *slot) {
	ln, oldest := best, q.old.first()
	q.takes++
	if q.takes >= agedShare {
		ln = oldest
	}
	s := ln.slots.first()
	ln.takes++
	if ln.takes >= agedShare || q.takes >= agedShare {
		s = ln.old.first()
	}
	if s == ln.old.first() {
		ln.takes = 0
		if ln == oldest {
			q.takes = 0
		}
	}
	if s == ln.slots.first() {
		q.rounds[ln.class] = max(q.rounds[ln.class], ln.round)
	}
	return ln, s
}

// verdict is what a driver says of a name that it gives back. The zero verdict
// forgets the name, unless it was added again in the meantime.
type verdict struct {
	// retry asks for another look after a backoff that grows with each retry.
	retry bool
	// arrived says that the name had been on its way to a claim and got there, so
	// that this retry is the first of a new row.
	arrived bool
	// again asks for another look, as soon as bar is over.
	again bool
	// bar keeps the name out for that long, whoever adds it.
	bar time.Duration
	// rest keeps the whole lane out for that long, or until it is freed.
	rest time.Duration
	// hesitate says that the lane rests for agents that come first, and not for one
	// that works.
	hesitate bool
	// move, when set, is the lane where the name belongs: it was given to a job of
	// another repository in the meantime.
	move *lane
	// urgent makes the name urgent, and calm makes it an ordinary one again.
	urgent, calm bool
}

// done gives back a name that next has returned.
func (q *queue) done(k key, now time.Time, v verdict) {
	s := q.slots[k]
	if s == nil || s.place != running {
		panic("jobs: internal error: a name was given back that nobody had")
	}
	if ln := q.lines[s.lane]; ln != nil {
		ln.busy = false
		if v.rest > 0 {
			ln.until = now.Add(v.rest)
			q.resting.put(ln)
		}
		q.settle(ln)
	}
	s.urgent = (s.urgent || v.urgent) && !v.calm
	if v.rest == 0 {
		q.arrivals++
		s.arrival = q.arrivals
	}
	if v.move != nil {
		s.lane = *v.move
	}
	wanted := s.wanted || v.again || v.retry
	if v.arrived {
		s.tries = 0
	}
	if v.retry {
		s.tries++
		if s.tries >= maxTries && !s.urgent {
			delete(q.slots, k)
			return
		}
		v.bar = max(v.bar, retryDelay(int(s.tries)))
	} else {
		s.tries = 0
		if s.hurried {
			v.bar = 0
		}
	}
	switch {
	case v.bar > 0:
		s.wanted = wanted
		q.bar(s, now.Add(v.bar))
	case wanted:
		q.wait(s)
	default:
		delete(q.slots, k)
	}
}

// free ends the rest of a lane.
func (q *queue) free(l lane) {
	if ln := q.lines[l]; ln != nil && q.resting.holds(ln) {
		q.resting.take(ln)
		q.settle(ln)
	}
}

// ready says whether next would return a name.
func (q *queue) ready(now time.Time) bool {
	q.promote(now)
	return q.turn.len() > 0
}

// due tells when the next barred name or resting lane may be served.
func (q *queue) due() (at time.Time, ok bool) {
	if s := q.later.first(); s != nil {
		at, ok = s.until, true
	}
	if ln := q.resting.first(); ln != nil && (!ok || ln.until.Before(at)) {
		at, ok = ln.until, true
	}
	return at, ok
}

func (q *queue) len() int { return len(q.slots) }

// promote lets names and lanes in whose time has come.
func (q *queue) promote(now time.Time) {
	for s := q.later.first(); s != nil && !s.until.After(now); s = q.later.first() {
		q.later.take(s)
		if s.wanted {
			q.wait(s)
		} else {
			delete(q.slots, s.key)
		}
	}
	for ln := q.resting.first(); ln != nil && !ln.until.After(now); ln = q.resting.first() {
		q.free(ln.lane)
	}
}

func (q *queue) bar(s *slot, until time.Time) {
	s.place, s.until = barred, until
	q.later.put(s)
}

// wait puts a slot into its lane, or moves it there, and the lane into turn.
func (q *queue) wait(s *slot) {
	s.place, s.wanted = waiting, false
	ln := q.lines[s.lane]
	if ln == nil {
		ln = &line{lane: s.lane, slots: rankedSlots(), old: agedSlots(), ranked: absent, aged: absent, resting: absent}
		if q.favour != nil {
			ln.favour = q.favour(s.lane)
		}
		q.lines[s.lane] = ln
	}
	if q.came != nil && !ln.slots.holds(s) {
		q.came(s)
	}
	ln.slots.put(s)
	ln.old.put(s)
	q.settle(ln)
}

// settle brings a line into turn or out of it, to its place there, or forgets it
// when it is empty.
func (q *queue) settle(ln *line) {
	best := ln.slots.first()
	rests := q.resting.holds(ln)
	if ln.busy || best == nil || rests && !best.urgent {
		q.turn.take(ln)
		q.old.take(ln)
		if best == nil && !ln.busy && !rests {
			delete(q.lines, ln.lane)
			q.emptied(ln.lane)
		}
		return
	}
	if !q.turn.holds(ln) || ln.class != best.priority {
		ln.class = best.priority
		ln.round = q.rounds[ln.class] + 1
	}
	q.turn.put(ln)
	q.old.put(ln)
}
