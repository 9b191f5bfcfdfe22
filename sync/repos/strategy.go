package repos

import (
	"time"

	"limpet/sync/api"
)

// request is the pull that a Repository wants.
type request struct {
	incremental bool
	reason      string
}

// resyncDue says that the interval asks for a look at the remote, or that a pull
// is owed.
func (f *facts) resyncDue() bool {
	sync := f.repo.Status.Sync
	switch {
	case !f.repo.Spec.Sync.Enabled || f.job:
		return false
	case f.gone: // pending or working, and the job is not there any more
		return true
	case sync.State == api.StatePending || sync.State == api.StateWorking:
		return false // under way
	case sync.Finished == 0 && sync.State == "":
		return false // never begun: the first pull has reasons of its own
	case f.owed || f.lost:
		return true
	}
	return !f.now.Before(f.nextTurn())
}

// nextTurn is when the interval asks for a look.
func (f *facts) nextTurn() time.Time {
	last, finished := f.asked, f.repo.Status.Sync.Finished
	if at := time.UnixMilli(finished); finished > 0 && at.After(last) {
		last = at
	}
	if last.After(f.now.Add(f.interval)) {
		// It comes from a clock that was wrong. Waiting for it could take years,
		// and nothing but a pull puts it right.
		return f.now
	}
	return turnAfter(last, f.uid, f.interval, f.start)
}

// strategy says which pull to queue, if any. healthy is the state of now, while
// the status has that of before. latest asks the remote for the commit of the
// branch; it is called only when that decides. Source: the ten cases of Grafana's
// controller, the first that applies; those between them are ours.
func strategy(f *facts, due flags, healthy bool, latest func() (string, error)) *request {
	status := f.repo.Status
	sick := status.Health.Checked > 0 && !status.Health.Healthy
	switch {
	case !f.repo.Spec.Sync.Enabled: // 1
		return nil
	case due.over || due.blocked: // 2
		return nil
	case !healthy: // 3
		return nil
	case sick: // 4
		return &request{reason: "healthy again"}
	case f.pulledWhole(): // somebody was faster
	case status.ObservedGeneration < 1 || status.Health.Checked == 0: // 5, and 4 at the first check
		return &request{reason: "first pull"}
	case f.specChanged(): // 6
		return &request{reason: "spec changed"}
	}
	switch {
	case f.roomier():
		return &request{reason: "more resources are allowed"}
	case f.rekeyed:
		return &request{incremental: true, reason: "other keys or another mode of verification"}
	case !due.resync:
		return nil
	case f.gone: // what it was to pull is not known, so everything is
		return &request{reason: "the last pull was lost"}
	case f.owed:
		return &request{reason: "the last pull began too early"}
	case f.lost:
		return &request{reason: "objects may be lost"}
	case f.repo.Spec.Type == typeLocal: // 7
		return &request{reason: "interval"}
	}
	ref, err := latest()
	switch {
	case err != nil: // 8
		return &request{incremental: true, reason: "interval"}
	case ref == status.Sync.LastRef && status.Sync.State == api.StateError: // it is known, but not in place
		return &request{reason: "the last pull failed"}
	case ref == status.Sync.LastRef && f.retagged:
		return &request{incremental: true, reason: "the tag was made anew"}
	case ref == status.Sync.LastRef: // 9
		return nil
	}
	// 10. The pull itself compares the commits, and goes over to everything where
	// it must: it has them, and this controller would have to fetch them.
	return &request{incremental: true, reason: "new commit " + ref[:min(len(ref), 7)]}
}
