package queue_test

import (
	"fmt"
	"time"

	"limpet/sync/jobs/queue"
)

// One key of a repository is handed out at a time; the next one comes when its driver is done.
func Example() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	repo := queue.RepoKey{Namespace: "default", Repository: "boards"}
	q := queue.New(queue.Limit, func(r queue.RepoKey) uint64 { return queue.Favour("agent-1", r) })
	q.Add(now, queue.Key{Namespace: "default", Name: "pull-1"}, repo, false, queue.Ordinary)
	q.Add(now, queue.Key{Namespace: "default", Name: "pull-2"}, repo, false, queue.Ordinary)

	k, r, _, ok := q.Next(now, false)
	fmt.Println(k, "of", r.Repository, ok)
	_, _, _, ok = q.Next(now, false)
	fmt.Println("another one at once:", ok)

	q.Done(now, k, queue.Result{Retry: true})
	k, _, _, _ = q.Next(now, false)
	fmt.Println(k)
	q.Done(now, k, queue.Result{})
	at, ok := q.Due()
	fmt.Println("the first again after a backoff:", ok && at.After(now))

	// Output:
	// default/pull-1 of boards true
	// another one at once: false
	// default/pull-2
	// the first again after a backoff: true
}
