package queue

import (
	"fmt"
	"testing"
	"time"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// names takes everything that is ready, giving each name back at once.
func names(q *Queue, now time.Time) (out []string) {
	for {
		k, _, _, ok := q.Next(now, false)
		if !ok {
			return out
		}
		out = append(out, k.Name)
		q.Done(now, k, Result{})
	}
}

func put(q *Queue, repository string, jobs ...string) {
	for _, name := range jobs {
		q.Add(t0, Key{"ns", name}, RepoKey{"ns", repository}, false, Ordinary)
	}
}

func TestQueueResults(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		result Result
		during func(q *Queue) // while the name runs
		ready  []time.Duration
		never  bool
	}{
		{name: "forgotten", never: true},
		{name: "added while running", during: func(q *Queue) { put(q, "a", "x") }, ready: []time.Duration{0}},
		{name: "again at once", result: Result{Requeue: true}, ready: []time.Duration{0}},
		{name: "again after a bar", result: Result{Requeue: true, After: 30 * time.Second}, ready: []time.Duration{30 * time.Second}},
		{name: "delayed and not wanted", result: Result{After: 30 * time.Second}, never: true},
		{name: "delayed, added while running", result: Result{After: 30 * time.Second}, during: func(q *Queue) { put(q, "a", "x") },
			ready: []time.Duration{30 * time.Second}},
		{name: "retry", result: Result{Retry: true}, ready: []time.Duration{250 * time.Millisecond}},
		{name: "retry, not before the server wants it", result: Result{Retry: true, After: 7 * time.Second},
			ready: []time.Duration{7 * time.Second}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := New(10, nil)
			put(q, "a", "x")
			k, _, _, _ := q.Next(t0, false)
			if c.during != nil {
				c.during(q)
			}
			q.Done(t0, k, c.result)
			if c.never {
				if got := names(q, at(time.Hour)); len(got) != 0 || q.Len() != 0 {
					t.Fatalf("served again: %v, %d names left", got, q.Len())
				}
				return
			}
			due := c.ready[0]
			if due > 0 {
				if q.Ready(at(due-time.Millisecond), false) {
					t.Fatalf("ready before %s", due)
				}
				if until, ok := q.Due(); !ok || !until.Equal(at(due)) {
					t.Fatalf("due at %s, want %s", until, at(due))
				}
			}
			if got := names(q, at(due)); len(got) != 1 {
				t.Fatalf("after %s: %v", due, got)
			}
		})
	}
}

func TestQueueMovesAKeyToItsRepository(t *testing.T) {
	t.Parallel()
	q := New(10, nil)
	put(q, "old", "x", "y")
	x, _, _, _ := q.Next(t0, false)
	q.Done(t0, x, Result{Requeue: true, Repo: &RepoKey{x.Namespace, "new"}})
	seen := map[string]string{}
	for range 2 {
		k, l, _, ok := q.Next(t0, false)
		if !ok {
			t.Fatal("keys of two repositories wait for each other")
		}
		seen[k.Name] = l.Repository
	}
	if seen["x"] != "new" || seen["y"] != "old" {
		t.Fatalf("repositories %v", seen)
	}
}

func TestQueueRefusesBeyondItsLimit(t *testing.T) {
	t.Parallel()
	q := New(3, nil)
	put(q, "a", "1", "2", "3", "4", "5", "1")
	q.AddAfter(t0, Key{"ns", "6"}, RepoKey{"ns", "a"}, time.Second)
	if q.Len() != 3 || q.Refused() != 3 {
		t.Fatalf("%d names", q.Len())
	}
	q.Add(t0, Key{"ns", "own"}, RepoKey{"ns", "b"}, true, Ordinary)
	if q.Len() != 4 {
		t.Fatal("an own claim was refused")
	}
}

// TestFullQueueTakesOtherRepositories: one repository with many jobs keeps no other one out.
func TestFullQueueTakesOtherRepositories(t *testing.T) {
	t.Parallel()
	q, now := New(4, nil), time.Now()
	busy, idle := RepoKey{"d", "r"}, RepoKey{"d", "s"}
	var list []Candidate
	for i := range 5 {
		list = append(list, Candidate{Key{"d", fmt.Sprint("r", i)}, busy, Ordinary})
	}
	q.Fill(now, list)
	if _, _, _, ok := q.Next(now, false); !ok {
		t.Fatal("nothing is served")
	}
	q.Fill(now, append([]Candidate{{Key{"d", "s0"}, idle, 9}}, list[1:]...))
	if k, _, _, ok := q.Next(now, false); !ok || k.Name != "s0" {
		t.Errorf("%v is served, %t", k, ok)
	}
}
