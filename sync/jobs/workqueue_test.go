package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/jobs/queue"
)

func testQueue(observe func(Event)) *workQueue {
	return newWorkQueue(newEmitter(slog.New(slog.DiscardHandler), observe), "agent")
}

// TestFullQueue: beyond its limit the queue takes in only what would wait
// unfairly outside, asks for more when that is due, and is bounded all the same.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	w := testQueue(func(Event) {})
	add := func(name, repository string) { w.add(key("ns", name), repoKey("ns", repository), false) }
	size := func() int { known, _ := w.load(); return known }
	for n := range 3 * queue.Limit {
		add(fmt.Sprint("big-", n), "big")
	}
	if size() != queue.Limit || w.queue.Short() {
		t.Fatalf("%d keys, short %v", size(), w.queue.Short())
	}
	for n := range 2 * queue.RepoShare {
		add(fmt.Sprint("small-", n), "small")
	}
	w.addRanked(key("ns", "urgent"), repoKey("ns", "big"), queue.Highest)
	w.add(key("ns", "own"), repoKey("ns", "big"), true)
	if size() != queue.Limit+queue.RepoShare+2 {
		t.Errorf("%d keys, want %d more than %d", size(), queue.RepoShare+2, queue.Limit)
	}
	for n := range 3 * queue.Reserve {
		w.addRanked(key("ns", fmt.Sprint("flood-", n)), repoKey("ns", fmt.Sprint(n)), queue.Highest)
	}
	if size() != queue.Limit+queue.Reserve {
		t.Errorf("%d keys, want %d", size(), queue.Limit+queue.Reserve)
	}
	asks := func(when string) {
		t.Helper()
		select {
		case <-w.short:
		default:
			t.Error("no more keys are asked for when " + when)
		}
	}
	for taken := 0; taken < queue.RepoShare; {
		k, r, _ := w.take(t.Context())
		if r.Repository == "small" {
			taken++
		}
		w.done(k, queue.Result{})
	}
	asks("a repository is empty whose other jobs are outside")
	if w.resetOverflow(); w.queue.Short() {
		t.Error("asks again after a scan")
	}
	w.fill(nil, map[queue.RepoKey]struct{}{repoKey("ns", "big"): {}})
	for n := range queue.Limit {
		add(fmt.Sprint("big-", n), "big")
	}
	for size() >= queue.Limit/2 {
		k, _, _ := w.take(t.Context())
		w.done(k, queue.Result{})
	}
	asks("half of the queue is empty")
}

// TestFillIsWhole: a driver that waits gets the best of what is brought in, not
// what is brought in first.
func TestFillIsWhole(t *testing.T) {
	for range 200 {
		w := testQueue(func(Event) {})
		got := make(chan queue.Key)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			k, _, _ := w.take(ctx)
			got <- k
		}()
		found := make([]candidate, 0, 50)
		for n := range 50 {
			found = append(found, candidate{key("ns", fmt.Sprint("job-", n)), repoKey("ns", fmt.Sprint("repo-", n)), n / 49 * 9})
		}
		w.fill(found, nil)
		k := <-got
		cancel()
		if k.Name != "job-49" {
			t.Fatalf("%s came before the job with priority 9", k)
		}
	}
}

// TestWaitIsMeasured: the time in a repository queue counts, that of a delay does
// not, and the backlog says what waits and what is out.
func TestWaitIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waited, took time.Duration
		w := testQueue(func(e Event) {
			d := e.Detail.(KeyDone)
			waited += d.Waited
			took += d.Took
		})
		check := func(want Backlog) {
			t.Helper()
			var b Backlog
			if w.count(&b); fmt.Sprint(b) != fmt.Sprint(want) {
				t.Errorf("backlog %+v, want %+v", b, want)
			}
		}
		a, r := key("default", "a"), repoKey("default", "r")
		w.add(a, r, false)
		<-time.After(3 * time.Second)
		w.add(a, r, false)   // known
		w.addRanked(a, r, 9) // moved within its repository
		w.add(key("default", "b"), r, false)
		check(Backlog{Queued: 2, Waiting: 2, Added: 2})
		if k, _, ok := w.take(t.Context()); !ok || k != a {
			t.Fatalf("took %v, %v", k, ok)
		}
		<-time.After(2 * time.Second)
		check(Backlog{Queued: 2, Waiting: 1, Added: 2, Looking: []time.Duration{2 * time.Second}})
		w.done(a, queue.Result{Requeue: true, After: time.Minute})
		check(Backlog{Queued: 2, Waiting: 1, Added: 2})
		if waited != 3*time.Second || took != 2*time.Second {
			t.Errorf("waited %s, took %s", waited, took)
		}
		<-time.After(2 * time.Minute)
		for range 2 { // b, which has waited for two minutes, and a after its delay
			k, _, _ := w.take(t.Context())
			w.done(k, queue.Result{})
		}
		check(Backlog{Added: 3})
		if waited != 3*time.Second+2*time.Second+2*time.Minute {
			t.Errorf("waited %s", waited)
		}
	})
}
