package jobs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// naive is the queue as its laws say it, without any structure: one slice that
// is searched from end to end.
type naive struct {
	names    []*naiveName
	arrivals int
	takes    int
	rounds   [10]int
	lanes    map[lane]*naiveLane // for ever, unlike in the queue
	favour   func(lane) uint64
}

type naiveName struct {
	key      key
	lane     lane
	priority int
	urgent   bool
	wanted   bool
	place    place
	arrival  int
	tries    int
	until    time.Time
}

type naiveLane struct {
	takes, round, class int
	inTurn              bool
	until               time.Time // of the rest
}

func (n *naive) find(k key) *naiveName {
	for _, x := range n.names {
		if x.key == k {
			return x
		}
	}
	return nil
}

func (n *naive) waiting(l lane) (best, oldest *naiveName, busy bool) {
	for _, x := range n.names {
		switch {
		case x.lane != l:
		case x.place == running:
			busy = true
		case x.place == waiting:
			if oldest == nil || x.arrival < oldest.arrival {
				oldest = x
			}
			if best == nil || naiveBefore(x, best) {
				best = x
			}
		}
	}
	return best, oldest, busy
}

func naiveBefore(a, b *naiveName) bool {
	if a.urgent != b.urgent {
		return a.urgent
	}
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	return a.arrival < b.arrival
}

// turns brings lanes into turn and out of it after every change.
func (n *naive) turns(now time.Time) {
	for _, x := range n.names {
		if n.lanes[x.lane] == nil {
			n.lanes[x.lane] = &naiveLane{}
		}
	}
	for l, ln := range n.lanes {
		best, _, busy := n.waiting(l)
		rests := ln.until.After(now)
		if busy || best == nil || rests && !best.urgent {
			ln.inTurn = false
			if best == nil && !busy && !rests {
				ln.takes = 0 // the queue has forgotten the lane
			}
			continue
		}
		if !ln.inTurn || ln.class != best.priority {
			ln.inTurn, ln.class, ln.round = true, best.priority, n.rounds[best.priority]+1
		}
	}
}

// promote follows the queue, which lets names in one after the other, by the end
// of their bars, and lanes after them.
func (n *naive) promote(now time.Time, last time.Time) {
	for {
		var first *naiveName
		for _, x := range n.names {
			if x.place == barred && !x.until.After(now) && (first == nil || x.until.Before(first.until) || x.until.Equal(first.until) && x.arrival < first.arrival) {
				first = x
			}
		}
		if first == nil {
			break
		}
		if first.wanted {
			first.place, first.wanted = waiting, false
		} else {
			n.drop(first)
		}
		n.turns(last)
	}
	n.turns(now)
}

func (n *naive) drop(x *naiveName) {
	for i := range n.names {
		if n.names[i] == x {
			n.names = append(n.names[:i], n.names[i+1:]...)
			return
		}
	}
}

func (n *naive) add(k key, l lane, urgent bool, priority int) {
	x := n.find(k)
	if x == nil {
		n.arrivals++
		n.names = append(n.names, &naiveName{key: k, lane: l, priority: priority, urgent: urgent, arrival: n.arrivals})
		return
	}
	x.priority = priority
	x.urgent = x.urgent || urgent
	x.wanted = x.wanted || x.place != waiting
}

func (n *naive) next() (key, bool) {
	var best, oldest *naiveName
	var bestLane *naiveLane
	for l, ln := range n.lanes {
		if !ln.inTurn {
			continue
		}
		b, o, _ := n.waiting(l)
		if oldest == nil || o.arrival < oldest.arrival {
			oldest = o
		}
		if best == nil || n.laneBefore(b, ln, best, bestLane) {
			best, bestLane = b, ln
		}
	}
	if best == nil {
		return key{}, false
	}
	x := best
	if !best.urgent {
		n.takes++
		aged := n.takes >= agedShare
		if aged {
			x = oldest
		}
		ln := n.lanes[x.lane]
		b, o, _ := n.waiting(x.lane)
		ln.takes++
		if ln.takes >= agedShare || aged {
			x = o
		} else {
			x = b
		}
		if x == o {
			ln.takes = 0
			if x == oldest {
				n.takes = 0
			}
		}
		if x == b {
			n.rounds[ln.class] = max(n.rounds[ln.class], ln.round)
		}
	}
	x.place, x.wanted = running, false
	return x.key, true
}

func (n *naive) laneBefore(a *naiveName, la *naiveLane, b *naiveName, lb *naiveLane) bool {
	if a.urgent != b.urgent || a.priority != b.priority {
		return naiveBefore(a, b)
	}
	if la.round != lb.round {
		return la.round < lb.round
	}
	if fa, fb := n.favour(a.lane), n.favour(b.lane); fa != fb {
		return fa > fb
	}
	return a.arrival < b.arrival
}

func (n *naive) done(k key, now time.Time, v verdict) {
	x := n.find(k)
	x.place = barred // not running any more
	if v.rest > 0 {
		n.lanes[x.lane].until = now.Add(v.rest)
	}
	x.until = now.Add(time.Hour)
	n.turns(now) // the lane comes into turn before the name is back
	x.urgent = (x.urgent || v.urgent) && !v.calm
	if v.rest == 0 {
		n.arrivals++
		x.arrival = n.arrivals
	}
	wanted := x.wanted || v.again || v.retry
	x.wanted = false
	if v.arrived {
		x.tries = 0
	}
	if v.retry {
		if x.tries++; x.tries >= maxTries && !x.urgent {
			n.drop(x)
			return
		}
		v.bar = max(v.bar, retryDelay(x.tries))
	} else {
		x.tries = 0
	}
	switch {
	case v.bar > 0:
		x.place, x.wanted, x.until = barred, wanted, now.Add(v.bar)
	case wanted:
		x.place = waiting
	default:
		n.drop(x)
	}
}

// TestQueueKeepsItsLaws drives the queue and the naive one with the same random
// adds, takes, verdicts, rests and priorities, and asks after each step that
// they agree and that no name waits longer than the bound at the top of queue.go.
func TestQueueKeepsItsLaws(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			hash := func(l lane) uint64 { return favour("a", l) >> 62 } // with ties
			q, n := newQueue(10_000), &naive{lanes: map[lane]*naiveLane{}, favour: hash}
			q.favour = hash
			now, lanes := t0, 1+r.IntN(8)
			waits := map[key]*wait4{}
			var busy []key
			older := map[key][]*wait4{} // who waited when it was taken, and was younger
			for step := range 600 {
				last := now
				switch what := r.IntN(10); {
				case what < 5:
					i := r.IntN(60)
					k, l := key{"ns", fmt.Sprint(i)}, lane{"ns", fmt.Sprint(i % lanes)}
					urgent, priority := r.IntN(40) == 0, r.IntN(10)
					q.add(k, l, urgent, priority)
					n.add(k, l, urgent, priority)
				case what < 8:
					for _, w := range waits {
						w.free = n.lanes[w.lane].inTurn
					}
					k, l, ok := q.next(now)
					want, wantOK := n.next()
					if ok != wantOK || k != want {
						t.Fatalf("step %d: took %v %t, want %v %t", step, k, ok, want, wantOK)
					}
					if ok {
						if w := waits[k]; w != nil {
							w.check(t, k)
							delete(waits, k)
						}
						if !n.find(k).urgent {
							for _, w := range waits {
								w.count(l)
							}
						}
						for of, w := range waits {
							if n.find(of).arrival > n.find(k).arrival {
								older[k] = append(older[k], w)
							}
						}
						busy = append(busy, k)
					}
				case len(busy) > 0:
					i := r.IntN(len(busy))
					v := verdict{again: r.IntN(3) == 0, retry: r.IntN(8) == 0, arrived: r.IntN(4) == 0, urgent: r.IntN(30) == 0, calm: r.IntN(3) > 0}
					if r.IntN(3) == 0 {
						v.bar = time.Duration(r.IntN(3000)) * time.Millisecond
					}
					if r.IntN(6) == 0 {
						v.rest = time.Duration(1+r.IntN(5)) * time.Second
					}
					if v.rest > 0 {
						v.again = true
						for _, w := range older[busy[i]] {
							w.all++
							if w.lane == n.find(busy[i]).lane {
								w.own++
							}
						}
					}
					delete(older, busy[i])
					q.done(busy[i], now, v)
					n.done(busy[i], now, v)
					busy = append(busy[:i], busy[i+1:]...)
				default:
					l := lane{"ns", fmt.Sprint(r.IntN(lanes))}
					q.free(l)
					if ln := n.lanes[l]; ln != nil {
						ln.until = time.Time{}
					}
				}
				n.turns(last)
				if r.IntN(4) == 0 {
					now = now.Add(time.Duration(r.IntN(700)) * time.Millisecond)
				}
				q.promote(now)
				n.promote(now, last)
				n.bounds(waits)
				if q.len() != len(n.names) {
					t.Fatalf("step %d: %d names, want %d", step, q.len(), len(n.names))
				}
			}
		})
	}
}

// wait4 is the bounded wait of one name.
type wait4 struct {
	lane         lane
	all, own     int // the bound: names that were older when it began to wait
	takes, taken int // takes while its lane was free; takes of its lane
	free         bool
}

func (w *wait4) count(l lane) {
	if w.free {
		w.takes++
	}
	if l == w.lane {
		w.taken++
	}
}

func (w *wait4) check(t *testing.T, k key) {
	t.Helper()
	if free, own := agedShare*(w.all+1), agedShare*(w.own+1); w.takes > free && w.taken > own {
		t.Fatalf("%v waited for %d takes with its lane free (bound %d) and %d takes of its lane (bound %d)", k, w.takes, free, w.taken, own)
	}
}

// bounds begins to count for names that have begun to wait and forgets those
// that do not wait.
func (n *naive) bounds(waits map[key]*wait4) {
	for k := range waits {
		if x := n.find(k); x == nil || x.place != waiting {
			delete(waits, k)
		}
	}
	for _, x := range n.names {
		if x.place != waiting || waits[x.key] != nil {
			continue
		}
		w := &wait4{lane: x.lane}
		for _, y := range n.names {
			if y.arrival < x.arrival {
				w.all++
				if y.lane == x.lane {
					w.own++
				}
			}
		}
		waits[x.key] = w
	}
}

// TestQueueStarvesNobody: a name of the lowest priority among an endless stream
// of the highest one, in its own lane and in others, is served within the bound.
func TestQueueStarvesNobody(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"own", "other"} {
		q, fresh := newQueue(1000), 0
		for range 50 {
			fresh++
			q.add(key{"ns", fmt.Sprint(fresh)}, lane{"ns", home}, false, highest)
		}
		q.add(key{"ns", "poor"}, lane{"ns", "own"}, false, 0)
		for takes := 1; ; takes++ {
			if takes > agedShare*51 {
				t.Fatalf("stream in lane %s: not served in %d takes", home, takes-1)
			}
			k, _, _ := q.next(t0)
			if k.Name == "poor" {
				break
			}
			q.done(k, t0, verdict{})
			fresh++
			q.add(key{"ns", fmt.Sprint(fresh)}, lane{"ns", home}, false, highest)
		}
	}
}

func TestQueueServesThePriorityFirst(t *testing.T) {
	t.Parallel()
	q := newQueue(10_000)
	for i := range 5000 {
		q.add(key{"ns", fmt.Sprint(i)}, lane{"ns", fmt.Sprint(i % 500)}, false, ordinary)
	}
	for range 100 {
		k, _, _ := q.next(t0)
		q.done(k, t0, verdict{})
	}
	q.add(key{"ns", "fire"}, lane{"ns", "7"}, false, highest)
	for takes := 1; ; takes++ {
		k, _, _ := q.next(t0)
		q.done(k, t0, verdict{})
		if k.Name == "fire" {
			if takes > 2 {
				t.Fatalf("the most urgent job of 5,000 was served as number %d", takes)
			}
			return
		}
	}
}

func TestQueueHeedsAChangedPriority(t *testing.T) {
	t.Parallel()
	q := newQueue(100)
	put(q, "a", "a1", "a2")
	put(q, "b", "b1", "b2")
	put(q, "c", "c1")
	q.add(key{"ns", "b2"}, lane{"ns", "b"}, false, 8)        // up: before its own lane and the others
	q.add(key{"ns", "a1"}, lane{"ns", "a"}, false, 1)        // down
	q.add(key{"ns", "c1"}, lane{"ns", "c"}, false, unranked) // as it is
	if got := fmt.Sprint(names(q, t0)); got != "[b2 a2 b1 a1 c1]" {
		t.Fatalf("order %s", got)
	}
}

func TestQueueLaneRests(t *testing.T) {
	t.Parallel()
	q := newQueue(100)
	put(q, "a", "a1", "a2")
	put(q, "b", "b1")
	k, _, _ := q.next(t0)
	q.done(k, t0, verdict{again: true, rest: 10 * time.Second})
	if got := fmt.Sprint(names(q, t0)); got != "[b1]" {
		t.Fatalf("served %s while lane a rests", got)
	}
	if at, ok := q.due(); !ok || !at.Equal(t0.Add(10*time.Second)) {
		t.Fatalf("due %s", at)
	}
	q.add(key{"ns", "a3"}, lane{"ns", "a"}, true, unranked)
	if got := fmt.Sprint(names(q, t0)); got != "[a3]" {
		t.Fatalf("%s: an own claim waits for the rest of its lane, or the lane did not go on resting", got)
	}
	q.free(lane{"ns", "a"})
	if got := fmt.Sprint(names(q, t0)); got != "[a1 a2]" || len(q.lines) != 0 || q.resting.len() != 0 {
		t.Fatalf("served %s after the lane was freed, %d lines left", got, len(q.lines))
	}
	put(q, "a", "a1")
	k, _, _ = q.next(t0)
	q.done(k, t0, verdict{again: true, rest: 10 * time.Second})
	if got := fmt.Sprint(names(q, at(10*time.Second))); got != "[a1]" || len(q.lines) != 0 {
		t.Fatalf("served %s after the rest, %d lines left", got, len(q.lines))
	}
}

// TestAgentsBeginAtDifferentEnds: what two agents take first of one backlog is
// hardly ever the same, and each serves all of it.
func TestAgentsBeginAtDifferentEnds(t *testing.T) {
	t.Parallel()
	const agents, lanes = 8, 200
	first := map[string]int{}
	for i := range agents {
		q := newIntake(10_000, fmt.Sprint("agent-", i)).queue
		for n := range lanes {
			q.add(key{"ns", fmt.Sprint(n)}, lane{"ns", fmt.Sprint(n)}, false, ordinary)
		}
		order := names(q, t0)
		if len(order) != lanes {
			t.Fatalf("%d names served", len(order))
		}
		for _, name := range order[:4] {
			first[name]++
		}
	}
	// Every fourth take is of the oldest, which all agents know as the same.
	if len(first) < agents*3-2 {
		t.Fatalf("%d agents begin with only %d different jobs: %v", agents, len(first), first)
	}
}

func BenchmarkQueue(b *testing.B) {
	q := newQueue(100_000)
	for n := range 100_000 {
		q.add(key{"ns", fmt.Sprint(n)}, lane{"ns", fmt.Sprint(n % 5000)}, false, n%10)
	}
	b.ReportAllocs()
	for b.Loop() {
		k, l, _ := q.next(t0)
		q.done(k, t0, verdict{})
		q.add(k, l, false, ordinary)
	}
}
