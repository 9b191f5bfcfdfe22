package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// laws drives a queue and remembers what its laws need.
type laws struct {
	*testing.T
	q     *Queue
	waits map[Key]*wait4
	older map[Key][]*wait4 // by a running key: the younger ones that waited when it was taken
	busy  []Key
}

// free returns the keys that may be served: they wait, no other key of their repository runs, and
// it is not in backoff, or they are urgent.
func (n *laws) free(now time.Time) (out []*item) {
	busy := map[RepoKey]bool{}
	for _, x := range n.q.items {
		busy[x.repo] = busy[x.repo] || x.place == running
	}
	for _, x := range n.q.items {
		rq := n.q.repos[x.repo]
		if x.place == waiting && !busy[x.repo] && (x.urgent || !n.q.backoff.holds(rq) || !rq.until.After(now)) {
			out = append(out, x)
		}
	}
	return out
}

// take takes a key and asks whether it was its turn.
func (n *laws) take(now time.Time) {
	free := n.free(now)
	for _, w := range n.waits {
		w.free = n.q.turn.holds(n.q.repos[w.repo])
	}
	k, l, _, ok := n.q.Next(now, false)
	if ok != (len(free) > 0) {
		n.Fatalf("took %v, %d keys may be served", k, len(free))
	}
	if !ok {
		return
	}
	x := n.q.items[k]
	if !slices.Contains(free, x) {
		n.Fatalf("%v was served and may not be", k)
	}
	oldest, oldestOfRepo := true, true
	for _, y := range free {
		older := y.arrival < x.arrival
		oldest, oldestOfRepo = oldest && !older, oldestOfRepo && (!older || y.repo != l)
	}
	for _, y := range free {
		switch {
		case y.urgent && !x.urgent:
			n.Fatalf("%v was served before the urgent %v", k, y.key)
		case x.urgent || oldest || oldestOfRepo:
		case y.priority > x.priority:
			n.Fatalf("%v was served before the more important %v", k, y.key)
		}
	}
	if w := n.waits[k]; w != nil {
		w.check(n.T, k)
		delete(n.waits, k)
	}
	for of, w := range n.waits {
		if !x.urgent {
			w.count(l)
		}
		if n.q.items[of].arrival > x.arrival {
			n.older[k] = append(n.older[k], w)
		}
	}
	n.busy = append(n.busy, k)
}

// done gives a key back. One that was taken in vain counts again for the younger ones.
func (n *laws) done(now time.Time, i int, v Result) {
	k := n.busy[i]
	if v.RepoAfter > 0 {
		v.Requeue = true
		for _, w := range n.older[k] {
			w.all++
			if w.repo == n.q.items[k].repo {
				w.own++
			}
		}
	}
	delete(n.older, k)
	n.q.Done(now, k, v)
	if s := n.q.items[k]; v.After > 0 && s != nil && (s.place != delayed || s.until.Before(now.Add(v.After))) {
		n.Fatalf("%v is not delayed for %s", k, v.After)
	}
	n.busy = append(n.busy[:i], n.busy[i+1:]...)
}

// bounds begins to count for keys that have begun to wait, and forgets those that do not.
func (n *laws) bounds() {
	for k := range n.waits {
		if x := n.q.items[k]; x == nil || x.place != waiting {
			delete(n.waits, k)
		}
	}
	for k, x := range n.q.items {
		if x.place != waiting || n.waits[k] != nil {
			continue
		}
		w := &wait4{repo: x.repo}
		for _, y := range n.q.items {
			if y.arrival < x.arrival {
				w.all++
				if y.repo == x.repo {
					w.own++
				}
			}
		}
		n.waits[k] = w
	}
}

// TestQueueKeepsItsLaws: random adds, takes, results, backoffs and priorities; no key waits longer
// than the bound at the top of queue.go.
func TestQueueKeepsItsLaws(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := &laws{T: t, q: New(10_000, func(l RepoKey) uint64 { return Favour("a", l) >> 62 }), // with ties
			waits: map[Key]*wait4{}, older: map[Key][]*wait4{}}
		now, repos := t0, 1+r.IntN(8)
		for range 600 {
			switch what := r.IntN(10); {
			case what < 5:
				i := r.IntN(60)
				n.q.Add(now, Key{"ns", fmt.Sprint(i)}, RepoKey{"ns", fmt.Sprint(i % repos)}, r.IntN(40) == 0, r.IntN(10))
			case what < 8:
				n.take(now)
			case len(n.busy) > 0:
				v := Result{Requeue: r.IntN(3) == 0, Retry: r.IntN(8) == 0, Urgent: r.IntN(30) == 0,
					NotUrgent: r.IntN(3) > 0}
				if r.IntN(3) == 0 {
					v.After = time.Duration(r.IntN(3000)) * time.Millisecond
				}
				if r.IntN(6) == 0 {
					v.RepoAfter = time.Duration(1+r.IntN(5)) * time.Second
				}
				n.done(now, r.IntN(len(n.busy)), v)
			default:
				n.q.Release(RepoKey{"ns", fmt.Sprint(r.IntN(repos))})
			}
			if r.IntN(4) == 0 {
				now = now.Add(time.Duration(r.IntN(700)) * time.Millisecond)
			}
			n.q.promote(now)
			n.bounds()
		}
	}
}

// TestQueueTakesTurns: a repository with a hundred jobs delays the single job of another one by two
// jobs at most.
func TestQueueTakesTurns(t *testing.T) {
	t.Parallel()
	for before := range 10 {
		q := New(1000, nil)
		for i := range 100 {
			put(q, "big", fmt.Sprint(i))
		}
		for range before {
			k, _, _, _ := q.Next(t0, false)
			q.Done(t0, k, Result{})
		}
		put(q, "small", "single")
		for takes := 1; ; takes++ {
			k, _, _, _ := q.Next(t0, false)
			q.Done(t0, k, Result{})
			if k.Name == "single" {
				break
			}
			if takes > 2 {
				t.Fatalf("after %d takes: not among the first three", before)
			}
		}
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
