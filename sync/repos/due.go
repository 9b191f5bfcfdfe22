// Package repos looks after Repositories. Today that is the schedule: it asks
// for a pull when one is due. The embedded API has no controllers of its own,
// so without this a Repository there would never move.
package repos

import (
	"time"

	"limpet/sync/api"
)

// MinInterval is the shortest period of pulls of one Repository, whatever its
// spec says. Source: the default of Grafana's min_sync_interval.
const MinInterval = 10 * time.Second

// Request is the pull that Due asks for.
type Request struct {
	Incremental bool
	Reason      string
}

// Interval returns the period of pulls of r.
func Interval(r api.Repository) time.Duration {
	return max(time.Duration(r.Spec.Sync.IntervalSeconds)*time.Second, MinInterval)
}

// Due says whether r wants a pull at now, and otherwise when it will. It is
// pure. A spec that was not looked at yet wants a full pull: what changed may be
// the branch or the directory. So does one that was pulled last before since: its
// objects may have been lost then; zero says that they were not. live says that a sync job of r exists already; generation is the
// object's own. A zero next means that only a change of r can make it due.
func Due(r api.Repository, generation int64, live bool, since, now time.Time) (req *Request, next time.Time) {
	sync := r.Status.Sync
	switch {
	case !r.Spec.Sync.Enabled:
		return nil, time.Time{}
	case r.Status.Health.Checked > 0 && !r.Status.Health.Healthy:
		return nil, time.Time{}
	case live:
		return nil, time.Time{}
	case sync.Finished == 0:
		return &Request{Reason: "first pull"}, time.Time{}
	case generation > r.Status.ObservedGeneration:
		return &Request{Reason: "spec changed"}, time.Time{}
	}
	finished := time.UnixMilli(sync.Finished)
	if finished.Before(since) {
		return &Request{Reason: "objects may be lost"}, time.Time{}
	}
	next = finished.Add(Interval(r))
	// A finish time in the future comes from a clock that was wrong. Waiting for
	// it could take years, and nothing but a pull puts it right.
	if next.After(now) && !next.After(now.Add(2*Interval(r))) {
		return nil, next
	}
	return &Request{Incremental: true, Reason: "interval"}, time.Time{}
}
