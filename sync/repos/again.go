package repos

import (
	"context"
	"time"

	"limpet/sync/api"
)

// again is when the Repository is looked into next without any event, by the local
// clock, and how often that happens.
func (r *reconciling) again(ctx context.Context) (time.Time, time.Duration) {
	repo, err := r.note.read(r.obj)
	if err != nil {
		return time.Time{}, 0
	}
	r.gather(repo)
	r.gatherToken(ctx)
	at, period := r.facts.nextLook()
	if missing := r.note.missing; !missing.IsZero() {
		at = earlier(at, missing.Add(lostAfter))
	}
	at = earlier(at, r.nextToken())
	r.gatherHook(ctx)
	if r.o.Hooks != nil && r.facts.repo.Status.Health.Healthy {
		switch rest := r.note.hookRest(r.facts.now); {
		case rest > 0:
			at = earlier(at, r.facts.now.Add(rest))
		case r.hookDue != "":
			at = earlier(at, r.facts.now.Add(hookCooldown))
		}
	}
	if at.IsZero() {
		return at, 0
	}
	// From the clock of the server to that of this host, which does not jump.
	return time.Now().Add(at.Sub(r.facts.now)), period
}

// nextLook is when something becomes due by time alone; zero is never.
func (f *facts) nextLook() (at time.Time, period time.Duration) {
	health := f.repo.Status.Health
	sync := f.repo.Status.Sync
	period = window(health)
	if health.Checked > 0 {
		at = time.UnixMilli(health.Checked).Add(window(health) + time.Millisecond)
		if first := f.start.first(f.uid, f.interval); at.Before(first) {
			at = first
		}
	}
	under := f.job || sync.State == api.StatePending || sync.State == api.StateWorking
	if !health.Healthy || !f.repo.Spec.Sync.Enabled || under || sync.Finished == 0 && sync.State == "" {
		return at, period
	}
	turn := f.nextTurn()
	if f.owed || f.lost {
		turn = f.now
	}
	if f.interval <= healthyFor {
		// A look at the remote serves both, so the check waits for the next.
		return turn, f.interval
	}
	return earlier(at, turn), period
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
