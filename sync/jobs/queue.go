package jobs

import (
	"container/heap"
	"time"
)

// The queue holds names of jobs, never objects, and knows neither goroutines
// nor clocks: every call is told the time. Its laws:
//
//   - A name is in it at most once. A name that is added while its job runs is
//     looked at again when the run is over.
//   - Names of one repository form a lane. A lane is served by one driver at a
//     time, so two jobs of one repository never run together in this agent.
//   - Lanes take turns: after a name was taken from a lane, every other lane
//     that has something waiting comes first. A repository with ten thousand
//     jobs delays the single job of another one by one job at most.
//   - A barred name is not served before its time, whoever adds it.

// queueLimit bounds the number of names in the queue. Beyond it new names are
// refused; the periodic list brings them again when there is room. A name costs
// about 300 bytes, so the bound is some 60 MB.
const queueLimit = 200_000

// maxTries is how often in a row a name may fail on its way to a claim before
// it is left to the next periodic list. Source: Grafana's driver.
const maxTries = 3

// key names a job. Names are reused, so a key never identifies one.
type key struct{ Namespace, Name string }

func (k key) String() string { return k.Namespace + "/" + k.Name }

// lane names the repository whose jobs exclude each other.
type lane struct{ Namespace, Repository string }

type place int

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
	tries  int
	until  time.Time // of the bar
	index  int       // in later
}

// line is a lane with its waiting names, oldest first.
type line struct {
	lane   lane
	slots  []*slot
	busy   bool // a driver has one of its names
	inTurn bool // the line is in turn
}

type queue struct {
	slots   map[key]*slot
	lines   map[lane]*line
	turn    []*line // lines that are not busy and not empty, each once
	later   barHeap
	limit   int
	refused int // names refused since the last call of overflow
}

func newQueue(limit int) *queue {
	return &queue{slots: map[key]*slot{}, lines: map[lane]*line{}, limit: limit}
}

// add brings a name in. It returns false when the queue is full.
func (q *queue) add(k key, l lane, urgent bool) bool {
	s := q.slots[k]
	if s == nil {
		if len(q.slots) >= q.limit && !urgent {
			q.refused++
			return false
		}
		s = &slot{key: k, lane: l, urgent: urgent}
		q.slots[k] = s
		q.wait(s)
		return true
	}
	s.urgent = s.urgent || urgent
	if s.place != waiting {
		s.wanted = true
	}
	return true
}

// addAt brings a name in that must not be served before a time. A name that
// already waits or runs is not held back.
func (q *queue) addAt(k key, l lane, until time.Time) bool {
	if q.slots[k] == nil {
		if len(q.slots) >= q.limit {
			q.refused++
			return false
		}
		s := &slot{key: k, lane: l, wanted: true}
		q.slots[k] = s
		q.bar(s, until)
		return true
	}
	return q.add(k, l, false)
}

// next takes the name whose turn it is.
func (q *queue) next(now time.Time) (key, lane, bool) {
	q.promote(now)
	if len(q.turn) == 0 {
		return key{}, lane{}, false
	}
	ln := q.turn[0]
	q.turn = q.turn[1:]
	ln.inTurn = false
	s := ln.slots[0]
	ln.slots[0] = nil
	ln.slots = ln.slots[1:]
	ln.busy = true
	s.place, s.wanted = running, false
	return s.key, s.lane, true
}

// verdict is what a driver says of a name that it gives back. The zero verdict
// forgets the name, unless it was added again in the meantime.
type verdict struct {
	// retry asks for another look after a backoff that grows with each retry.
	retry bool
	// again asks for another look, as soon as bar is over.
	again bool
	// bar keeps the name out for that long, whoever adds it.
	bar time.Duration
	// repository, when not empty, moves the name to the lane where it belongs:
	// the name was given to a job of another repository in the meantime.
	repository string
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
		q.settle(ln)
	}
	s.urgent = (s.urgent || v.urgent) && !v.calm
	if v.repository != "" {
		s.lane.Repository = v.repository
	}
	wanted := s.wanted || v.again || v.retry
	if v.retry {
		s.tries++
		if s.tries >= maxTries && !s.urgent {
			delete(q.slots, k)
			return
		}
		v.bar = max(v.bar, retryDelay(s.tries))
	} else {
		s.tries = 0
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

// ready says whether next would return a name.
func (q *queue) ready(now time.Time) bool {
	q.promote(now)
	return len(q.turn) > 0
}

// due tells when the next barred name may be served.
func (q *queue) due() (time.Time, bool) {
	if len(q.later) == 0 {
		return time.Time{}, false
	}
	return q.later[0].until, true
}

// overflow returns how many names were refused since the last call.
func (q *queue) overflow() int {
	n := q.refused
	q.refused = 0
	return n
}

func (q *queue) len() int { return len(q.slots) }

// promote lets barred names in whose time has come.
func (q *queue) promote(now time.Time) {
	for len(q.later) > 0 && !q.later[0].until.After(now) {
		s := heap.Pop(&q.later).(*slot)
		if s.wanted {
			q.wait(s)
		} else {
			delete(q.slots, s.key)
		}
	}
}

func (q *queue) bar(s *slot, until time.Time) {
	s.place, s.until = barred, until
	heap.Push(&q.later, s)
}

// wait puts a slot into its lane and the lane into turn.
func (q *queue) wait(s *slot) {
	s.place, s.wanted = waiting, false
	ln := q.lines[s.lane]
	if ln == nil {
		ln = &line{lane: s.lane}
		q.lines[s.lane] = ln
	}
	if s.urgent {
		ln.slots = append([]*slot{s}, ln.slots...)
	} else {
		ln.slots = append(ln.slots, s)
	}
	q.settle(ln)
}

// settle brings a line into turn, or forgets it when it is empty.
func (q *queue) settle(ln *line) {
	switch {
	case ln.busy || ln.inTurn:
	case len(ln.slots) == 0:
		delete(q.lines, ln.lane)
	case ln.slots[0].urgent:
		ln.inTurn = true
		q.turn = append([]*line{ln}, q.turn...)
	default:
		ln.inTurn = true
		q.turn = append(q.turn, ln)
	}
}

type barHeap []*slot

func (h barHeap) Len() int           { return len(h) }
func (h barHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h barHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *barHeap) Push(x any) {
	s := x.(*slot)
	s.index = len(*h)
	*h = append(*h, s)
}
func (h *barHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return s
}
