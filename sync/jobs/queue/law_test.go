package queue

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
	repos    map[RepoKey]*naiveRepo // for ever, unlike in the queue
	favour   func(RepoKey) uint64
}

type naiveName struct {
	key      Key
	repo     RepoKey
	priority int
	urgent   bool
	wanted   bool
	place    place
	arrival  int
	tries    int
	until    time.Time
}

type naiveRepo struct {
	takes, round, class int
	inTurn, released    bool
	until               time.Time // of the backoff
}

func (n *naive) find(k Key) *naiveName {
	for _, x := range n.names {
		if x.key == k {
			return x
		}
	}
	return nil
}

func (n *naive) waiting(l RepoKey) (best, oldest *naiveName, busy bool) {
	for _, x := range n.names {
		switch {
		case x.repo != l:
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

// turns brings repos into turn and out of it after every change.
func (n *naive) turns(now time.Time) {
	for _, x := range n.names {
		if n.repos[x.repo] == nil {
			n.repos[x.repo] = &naiveRepo{}
		}
	}
	for l, ln := range n.repos {
		best, _, busy := n.waiting(l)
		rests := ln.until.After(now)
		if busy || best == nil || rests && !best.urgent {
			ln.inTurn = false
			if best == nil && !busy && !rests {
				ln.takes = 0 // the queue has forgotten the repo
			}
			continue
		}
		if !ln.inTurn || ln.class != best.priority {
			ln.inTurn, ln.class, ln.round = true, best.priority, n.rounds[best.priority]+1
		}
	}
}

// promote follows the queue, which lets names in one after the other, by the end
// of their bars, and repos after them.
func (n *naive) promote(now time.Time, last time.Time) {
	for {
		var first *naiveName
		for _, x := range n.names {
			if x.place == delayed && !x.until.After(now) && (first == nil || x.until.Before(first.until) || x.until.Equal(first.until) &&
				x.arrival < first.arrival) {
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

func (n *naive) add(k Key, l RepoKey, urgent bool, priority int) {
	x := n.find(k)
	if x == nil {
		n.arrivals++
		n.names = append(n.names, &naiveName{key: k, repo: l, priority: priority, urgent: urgent, arrival: n.arrivals})
		return
	}
	x.priority = priority
	x.urgent = x.urgent || urgent
	x.wanted = x.wanted || x.place != waiting
}

func (n *naive) next() (Key, bool) {
	var best, oldest *naiveName
	var bestRepo *naiveRepo
	for l, ln := range n.repos {
		if !ln.inTurn {
			continue
		}
		b, o, _ := n.waiting(l)
		if oldest == nil || o.arrival < oldest.arrival {
			oldest = o
		}
		if best == nil || n.repoBefore(b, ln, best, bestRepo) {
			best, bestRepo = b, ln
		}
	}
	if best == nil {
		return Key{}, false
	}
	x := best
	if !best.urgent {
		n.takes++
		aged := n.takes >= agedShare
		if aged {
			x = oldest
		}
		ln := n.repos[x.repo]
		b, o, _ := n.waiting(x.repo)
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
	n.repos[x.repo].released = false
	return x.key, true
}

func (n *naive) repoBefore(a *naiveName, la *naiveRepo, b *naiveName, lb *naiveRepo) bool {
	if a.urgent != b.urgent || a.priority != b.priority {
		return naiveBefore(a, b)
	}
	if la.round != lb.round {
		return la.round < lb.round
	}
	if fa, fb := n.favour(a.repo), n.favour(b.repo); fa != fb {
		return fa > fb
	}
	return a.arrival < b.arrival
}

func (n *naive) Done(now time.Time, k Key, v Result) {
	x := n.find(k)
	x.place = delayed // not running any more
	if ln := n.repos[x.repo]; v.RepoAfter > 0 && !ln.released {
		ln.until = now.Add(v.RepoAfter)
	}
	x.until = now.Add(time.Hour)
	n.turns(now) // the repo comes into turn before the name is back
	x.urgent = (x.urgent || v.Urgent) && !v.NotUrgent
	if v.RepoAfter == 0 {
		n.arrivals++
		x.arrival = n.arrivals
	}
	wanted := x.wanted || v.Requeue || v.Retry
	x.wanted = false
	if v.Progressed {
		x.tries = 0
	}
	if v.Retry {
		if x.tries++; x.tries >= maxTries && !x.urgent {
			n.drop(x)
			return
		}
		v.After = max(v.After, RetryDelay(x.tries))
	} else {
		x.tries = 0
	}
	switch {
	case v.After > 0:
		x.place, x.wanted, x.until = delayed, wanted, now.Add(v.After)
	case wanted:
		x.place = waiting
	default:
		n.drop(x)
	}
}

// TestQueueKeepsItsLaws drives the queue and the naive one with the same random
// adds, takes, results, backoffs and priorities, and asks after each step that
// they agree and that no name waits longer than the bound at the top of queue.go.
func TestQueueKeepsItsLaws(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			hash := func(l RepoKey) uint64 { return Favour("a", l) >> 62 } // with ties
			q, n := New(10_000, hash), &naive{repos: map[RepoKey]*naiveRepo{}, favour: hash}
			now, repos := t0, 1+r.IntN(8)
			waits := map[Key]*wait4{}
			var busy []Key
			older := map[Key][]*wait4{} // who waited when it was taken, and was younger
			for step := range 600 {
				last := now
				switch what := r.IntN(10); {
				case what < 5:
					i := r.IntN(60)
					k, l := Key{"ns", fmt.Sprint(i)}, RepoKey{"ns", fmt.Sprint(i % repos)}
					urgent, priority := r.IntN(40) == 0, r.IntN(10)
					q.Add(t0, k, l, urgent, priority)
					n.add(k, l, urgent, priority)
				case what < 8:
					for _, w := range waits {
						w.free = n.repos[w.repo].inTurn
					}
					k, l, _, ok := q.Next(now, false)
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
					v := Result{Requeue: r.IntN(3) == 0, Retry: r.IntN(8) == 0, Progressed: r.IntN(4) == 0, Urgent: r.IntN(30) == 0,
						NotUrgent: r.IntN(3) > 0}
					if r.IntN(3) == 0 {
						v.After = time.Duration(r.IntN(3000)) * time.Millisecond
					}
					if r.IntN(6) == 0 {
						v.RepoAfter = time.Duration(1+r.IntN(5)) * time.Second
					}
					if v.RepoAfter > 0 {
						v.Requeue = true
						for _, w := range older[busy[i]] {
							w.all++
							if w.repo == n.find(busy[i]).repo {
								w.own++
							}
						}
					}
					delete(older, busy[i])
					q.Done(now, busy[i], v)
					n.Done(now, busy[i], v)
					busy = append(busy[:i], busy[i+1:]...)
				default:
					l := RepoKey{"ns", fmt.Sprint(r.IntN(repos))}
					q.Release(l)
					if ln := n.repos[l]; ln != nil {
						if _, _, taken := n.waiting(l); taken {
							ln.released = true
						} else {
							ln.until = time.Time{}
						}
					}
				}
				n.turns(last)
				if r.IntN(4) == 0 {
					now = now.Add(time.Duration(r.IntN(700)) * time.Millisecond)
				}
				q.promote(now)
				n.promote(now, last)
				n.bounds(waits)
				if q.Len() != len(n.names) {
					t.Fatalf("step %d: %d names, want %d", step, q.Len(), len(n.names))
				}
			}
		})
	}
}

// wait4 is the bounded wait of one name.
type wait4 struct {
	repo         RepoKey
	all, own     int // the bound: names that were older when it began to wait
	takes, taken int // takes while its repo was free; takes of its repo
	free         bool
}

func (w *wait4) count(l RepoKey) {
	if w.free {
		w.takes++
	}
	if l == w.repo {
		w.taken++
	}
}

func (w *wait4) check(t *testing.T, k Key) {
	t.Helper()
	if free, own := agedShare*(w.all+1), agedShare*(w.own+1); w.takes > free && w.taken > own {
		t.Fatalf("%v waited for %d takes with its repo free (bound %d) and %d takes of its repo (bound %d)", k, w.takes, free, w.taken, own)
	}
}

// bounds begins to count for names that have begun to wait and forgets those
// that do not wait.
func (n *naive) bounds(waits map[Key]*wait4) {
	for k := range waits {
		if x := n.find(k); x == nil || x.place != waiting {
			delete(waits, k)
		}
	}
	for _, x := range n.names {
		if x.place != waiting || waits[x.key] != nil {
			continue
		}
		w := &wait4{repo: x.repo}
		for _, y := range n.names {
			if y.arrival < x.arrival {
				w.all++
				if y.repo == x.repo {
					w.own++
				}
			}
		}
		waits[x.key] = w
	}
}

// TestQueueStarvesNone: a name of the lowest priority among an endless stream
// of the Highest one, in its own repo and in others, is served within the bound.
func TestQueueStarvesNone(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"own", "other"} {
		q, fresh := New(1000, nil), 0
		for range 50 {
			fresh++
			q.Add(t0, Key{"ns", fmt.Sprint(fresh)}, RepoKey{"ns", home}, false, Highest)
		}
		q.Add(t0, Key{"ns", "poor"}, RepoKey{"ns", "own"}, false, 0)
		for takes := 1; ; takes++ {
			if takes > agedShare*51 {
				t.Fatalf("stream in repo %s: not served in %d takes", home, takes-1)
			}
			k, _, _, _ := q.Next(t0, false)
			if k.Name == "poor" {
				break
			}
			q.Done(t0, k, Result{})
			fresh++
			q.Add(t0, Key{"ns", fmt.Sprint(fresh)}, RepoKey{"ns", home}, false, Highest)
		}
	}
}

// TestAgentsBeginAtDifferentEnds: what two agents take first of one backlog is
// hardly ever the same, and each serves all of it.
func TestAgentsBeginAtDifferentEnds(t *testing.T) {
	t.Parallel()
	const agents, repos = 8, 200
	first := map[string]int{}
	for i := range agents {
		q := New(10_000, func(r RepoKey) uint64 { return Favour(fmt.Sprint("agent-", i), r) })
		for n := range repos {
			q.Add(t0, Key{"ns", fmt.Sprint(n)}, RepoKey{"ns", fmt.Sprint(n)}, false, Ordinary)
		}
		order := names(q, t0)
		if len(order) != repos {
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
