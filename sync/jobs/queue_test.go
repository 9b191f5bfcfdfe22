package jobs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// names takes everything that is ready, giving each name back at once.
func names(q *queue, now time.Time) (out []string) {
	for {
		k, _, ok := q.next(now)
		if !ok {
			return out
		}
		out = append(out, k.Name)
		q.done(k, now, verdict{})
	}
}

func put(q *queue, repository string, jobs ...string) {
	for _, name := range jobs {
		q.add(key{"ns", name}, lane{"ns", repository}, false, ordinary)
	}
}

func TestQueueServesRepositoriesInTurn(t *testing.T) {
	t.Parallel()
	q := newQueue(100)
	put(q, "a", "a1", "a2", "a3")
	put(q, "b", "b1")
	put(q, "c", "c1", "c2")
	put(q, "a", "a1") // once only
	want := "[a1 b1 c1 a2 c2 a3]"
	if got := fmt.Sprint(names(q, t0)); got != want {
		t.Fatalf("order %s, want %s", got, want)
	}
	if q.len() != 0 || len(q.lines) != 0 || q.turn.len() != 0 {
		t.Fatalf("an empty queue keeps %d names, %d lines, %d in turn", q.len(), len(q.lines), q.turn.len())
	}
}

func TestQueueNeverRunsTwoJobsOfOneRepository(t *testing.T) {
	t.Parallel()
	q := newQueue(100)
	put(q, "a", "a1", "a2")
	put(q, "b", "b1")
	first, _, _ := q.next(t0)
	second, _, _ := q.next(t0)
	if first.Name != "a1" || second.Name != "b1" {
		t.Fatalf("got %v and %v", first, second)
	}
	if k, _, ok := q.next(t0); ok {
		t.Fatalf("%v was served while a job of its repository ran", k)
	}
	q.done(first, t0, verdict{})
	if k, _, ok := q.next(t0); !ok || k.Name != "a2" {
		t.Fatalf("a2 was not served after a1 had ended, but %v", k)
	}
}

func TestQueueSameRepositoryNameInTwoNamespaces(t *testing.T) {
	t.Parallel()
	q := newQueue(100)
	q.add(key{"n1", "r-sync"}, lane{"n1", "r"}, false, ordinary)
	q.add(key{"n2", "r-sync"}, lane{"n2", "r"}, false, ordinary)
	for range 2 {
		if _, _, ok := q.next(t0); !ok {
			t.Fatal("repositories of two namespaces exclude each other")
		}
	}
}

func TestQueueVerdicts(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		verdict verdict
		during  func(q *queue) // while the name runs
		ready   []time.Duration
		never   bool
	}{
		{name: "forgotten", never: true},
		{name: "added while running", during: func(q *queue) { put(q, "a", "x") }, ready: []time.Duration{0}},
		{name: "again at once", verdict: verdict{again: true}, ready: []time.Duration{0}},
		{name: "again after a bar", verdict: verdict{again: true, bar: 30 * time.Second}, ready: []time.Duration{30 * time.Second}},
		{name: "barred and not wanted", verdict: verdict{bar: 30 * time.Second}, never: true},
		{name: "barred, added while running", verdict: verdict{bar: 30 * time.Second}, during: func(q *queue) { put(q, "a", "x") }, ready: []time.Duration{30 * time.Second}},
		{name: "retry", verdict: verdict{retry: true}, ready: []time.Duration{250 * time.Millisecond}},
		{name: "retry, not before the server wants it", verdict: verdict{retry: true, bar: 7 * time.Second}, ready: []time.Duration{7 * time.Second}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(10)
			put(q, "a", "x")
			k, _, _ := q.next(t0)
			if c.during != nil {
				c.during(q)
			}
			q.done(k, t0, c.verdict)
			if c.never {
				if got := names(q, at(time.Hour)); len(got) != 0 || q.len() != 0 {
					t.Fatalf("served again: %v, %d names left", got, q.len())
				}
				return
			}
			due := c.ready[0]
			if due > 0 {
				if q.ready(at(due - time.Millisecond)) {
					t.Fatalf("ready before %s", due)
				}
				if until, ok := q.due(); !ok || !until.Equal(at(due)) {
					t.Fatalf("due at %s, want %s", until, at(due))
				}
			}
			if got := names(q, at(due)); len(got) != 1 {
				t.Fatalf("after %s: %v", due, got)
			}
		})
	}
}

func TestQueueBarHoldsWhoeverAdds(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	put(q, "a", "x")
	k, _, _ := q.next(t0)
	q.done(k, t0, verdict{bar: 30 * time.Second})
	put(q, "a", "x")
	q.add(k, lane{"ns", "a"}, true, ordinary)
	if q.ready(at(29 * time.Second)) {
		t.Fatal("a barred name was let in")
	}
	if !q.ready(at(30 * time.Second)) {
		t.Fatal("a name that was added during its bar is not served after it")
	}
}

// TestQueueHurriesWhatRuns: who is in a hurry while the name is on its way back
// does not wait for the bar that it comes back with, but for a retry.
func TestQueueHurriesWhatRuns(t *testing.T) {
	t.Parallel()
	for _, retry := range []bool{false, true} {
		q := newQueue(100)
		put(q, "a", "a1")
		for range 2 {
			k, l, _ := q.next(t0)
			q.hurry(k, l)
			q.done(k, t0, verdict{bar: time.Hour, again: true, retry: retry})
			if q.ready(t0) == retry {
				t.Fatalf("retry %v: ready %v", retry, !retry)
			}
			if retry {
				break
			}
		}
		if retry {
			continue
		}
		k, _, _ := q.next(t0)
		if q.done(k, t0, verdict{bar: time.Hour, again: true}); q.ready(t0) {
			t.Fatal("a hurry of before ends another bar")
		}
	}
}

func TestQueueGivesUpAfterThreeTriesUnlessUrgent(t *testing.T) {
	t.Parallel()
	for _, urgent := range []bool{false, true} {
		q := newQueue(10)
		q.add(key{"ns", "x"}, lane{"ns", "a"}, urgent, ordinary)
		now, tries := t0, 0
		for range 20 {
			k, _, ok := q.next(now)
			if !ok {
				break
			}
			tries++
			q.done(k, now, verdict{retry: true})
			if until, ok := q.due(); ok {
				if d := until.Sub(now); d > 30*time.Second {
					t.Fatalf("try %d waits %s", tries, d)
				}
				now = until
			}
		}
		if !urgent && tries != maxTries || urgent && tries != 20 {
			t.Errorf("urgent %t: %d tries", urgent, tries)
		}
	}
}

func TestQueueUrgentGoesFirst(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	put(q, "a", "a1", "a2")
	put(q, "b", "b1")
	q.add(key{"ns", "a0"}, lane{"ns", "a"}, true, ordinary)
	q.add(key{"ns", "c0"}, lane{"ns", "c"}, true, ordinary)
	if got := fmt.Sprint(names(q, t0)); got != "[a0 c0 a1 b1 a2]" {
		t.Fatalf("order %s", got)
	}
}

func TestQueueMovesANameToItsLane(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	put(q, "old", "x", "y")
	x, _, _ := q.next(t0)
	q.done(x, t0, verdict{again: true, move: &lane{x.Namespace, "new"}})
	seen := map[string]string{}
	for range 2 {
		k, l, ok := q.next(t0)
		if !ok {
			t.Fatal("names of two lanes wait for each other")
		}
		seen[k.Name] = l.Repository
	}
	if seen["x"] != "new" || seen["y"] != "old" {
		t.Fatalf("lanes %v", seen)
	}
}

func TestQueueRefusesBeyondItsLimit(t *testing.T) {
	t.Parallel()
	q := newQueue(3)
	put(q, "a", "1", "2", "3", "4", "5", "1")
	q.addAt(key{"ns", "6"}, lane{"ns", "a"}, at(time.Second), ordinary)
	if q.len() != 3 || q.overflow() != 3 || q.overflow() != 0 {
		t.Fatalf("%d names", q.len())
	}
	q.add(key{"ns", "own"}, lane{"ns", "b"}, true, ordinary)
	if q.len() != 4 {
		t.Fatal("an own claim was refused")
	}
}

// TestQueueInvariants drives the queue at random and checks its laws after each
// step: exclusion, no name lost, no name twice, bounded wait between lanes.
func TestQueueInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		q, now := newQueue(1000), t0
		busy := map[lane]key{}
		wanted := map[key]bool{} // added and not taken since
		for range 400 {
			switch r.IntN(4) {
			case 0, 1:
				n := r.IntN(30)
				k, l := key{"ns", fmt.Sprint(n)}, lane{"ns", fmt.Sprint(n % 5)}
				q.add(k, l, r.IntN(10) == 0, r.IntN(10))
				wanted[k] = true
			case 2:
				if k, l, ok := q.next(now); ok {
					if other, taken := busy[l]; taken {
						t.Fatalf("seed %d: %v and %v run together", seed, other, k)
					}
					busy[l] = k
					delete(wanted, k)
				}
			case 3:
				for l, k := range busy {
					v := verdict{again: r.IntN(3) == 0, bar: time.Duration(r.IntN(3)) * time.Second}
					if v.again {
						wanted[k] = true
					}
					q.done(k, now, v)
					delete(busy, l)
					break
				}
				now = now.Add(time.Duration(r.IntN(1500)) * time.Millisecond)
			}
		}
		for l, k := range busy {
			q.done(k, now, verdict{})
			delete(busy, l)
		}
		for _, name := range names(q, now.Add(time.Hour)) {
			delete(wanted, key{"ns", name})
		}
		if len(wanted) > 0 || q.len() != 0 || len(q.lines) != 0 {
			t.Fatalf("seed %d: lost %v, %d names and %d lines left", seed, wanted, q.len(), len(q.lines))
		}
	}
}

func TestQueueHoldsAHundredThousandNames(t *testing.T) {
	t.Parallel()
	q := newQueue(100_000)
	for n := range 100_000 {
		q.add(key{"ns", fmt.Sprintf("job-%d", n)}, lane{"ns", fmt.Sprint(n % 1000)}, false, n%10)
	}
	if got := len(names(q, t0)); got != 100_000 {
		t.Fatalf("%d names came out", got)
	}
}

func TestGivingBackWhatNobodyHadPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	newQueue(1).done(key{"ns", "x"}, t0, verdict{})
}
