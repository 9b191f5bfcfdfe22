package snapshot

import (
	"testing"
	"time"
)

func TestCount(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	rests := Job{State: "pending", RetryAt: now.Add(time.Second)}
	jobs := []Job{
		{State: "working", Owner: "this"}, {State: "working", Owner: "other"}, {State: "pending"}, rests,
		{State: "pending", RetryAt: now}, {State: "success", Finished: now}, {State: "success", Undelivered: now},
	}
	got := Count(jobs, now)
	if want := (Counts{Working: 1, Elsewhere: 1, Pending: 2, Resting: 1, Done: 1, Undelivered: 1}); got != want || got.All() != len(jobs) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got.Add(&rests, -1, now); got.Resting != 0 {
		t.Errorf("%+v after the removal", got)
	}
}
