package repos

import (
	"fmt"
	"time"

	"limpet/sync/api"
	"limpet/sync/reconcile"
)

// minInterval is the shortest period of pulls of one Repository, whatever its spec says.
// Source: the default of Grafana's min_sync_interval.
const minInterval = 10 * time.Second

// facts is what is known of a Repository before any request. All times are the server's.
type facts struct {
	now        time.Time
	uid        string
	generation int64
	repo       api.Repository
	interval   time.Duration // of pulls
	quota      Quota         // that holds
	count      int64         // Repositories of the namespace that are not being deleted

	start   reconcile.Start // of the controller
	askedAt time.Time       // when the remote was asked last because of the interval; zero = not by this process

	pulledAfter bool      // the last pull began after this process saw this generation first
	jobExists   bool      // a sync job exists
	unservedAt  time.Time // when that job does not count any more, because no agent serves it
	jobLost     bool      // the status names a pull under way whose job does not exist any more
	pullOwed    bool      // a full pull could not be queued because another one was under way
	dataLost    bool      // what was pulled may have been lost since

	trust       string // what is asked of signatures, see Trust
	signedTag   bool   // of a tag object
	keysChanged bool   // what was pulled was verified by other keys, and no pull was queued since

	ownGeneration int64       // a generation of our own making, which needs no work
	token         *tokenFacts // nil = no token is to be minted
}

// intervalOf returns the period of pulls that a Repository asks for.
func intervalOf(repo api.Repository) time.Duration {
	return max(time.Duration(repo.Spec.Sync.IntervalSeconds)*time.Second, minInterval)
}

// specChanged reports whether no controller has dealt with the present spec.
func (f *facts) specChanged() bool { return !f.current(f.repo.Status.ObservedGeneration) }

// current reports whether a generation is the present one, or the one before a write of our own.
func (f *facts) current(generation int64) bool {
	return generation == f.generation || f.generation == f.ownGeneration && generation == f.generation-1
}

func (f *facts) condition(kind string) (api.Condition, bool) {
	for _, c := range f.repo.Status.Conditions {
		if c.Type == kind {
			return c, true
		}
	}
	return api.Condition{}, false
}

// pulledFull reports whether everything has been pulled under the present spec although
// the status does not name it yet: a pull that began after the change has ended.
func (f *facts) pulledFull() bool {
	sync := f.repo.Status.Sync
	return f.pulledAfter && !sync.Incremental && (sync.State == api.StateSuccess || sync.State == api.StateWarning)
}

// pulledUnhealthy reports whether a pull has succeeded since a check that did not: a migration into
// an empty Git repository creates the branch.
func (f *facts) pulledUnhealthy() bool {
	health, sync := f.repo.Status.Health, f.repo.Status.Sync
	return !health.Healthy && health.Checked > 0 && sync.Finished > health.Checked &&
		(sync.State == api.StateSuccess || sync.State == api.StateWarning)
}

// waitsForSlot reports whether what became due while no controller ran waits for its
// slot. A change of the spec does not.
func (f *facts) waitsForSlot() bool {
	return f.repo.Status.Health.Checked > 0 && !f.specChanged() && f.now.Before(f.earliest())
}

func (f *facts) earliest() time.Time { return f.start.Earliest(f.uid, f.interval) }

// Why a Repository is reconciled, the first that applies; "" is for no reason, so that nothing is
// requested and nothing written. Source: the order of Grafana's repository controller.
const (
	triggerBlocked         = "blocked_over_quota"
	triggerOverQuota       = "over_quota"
	triggerSpec            = "spec_changed"
	triggerResync          = "resync_interval"
	triggerHealth          = "health_stale"
	triggerUnblock         = "unblock"
	triggerToken           = "token_generation"
	triggerQuota           = "quota_changed"
	triggerWebhookMissing  = "webhook_missing"
	triggerWebhookRotation = "webhook_secret_rotation"
)

// Triggers are all reasons for which a Repository is reconciled, as Grafana names them.
var Triggers = []string{
	triggerBlocked, triggerOverQuota, triggerSpec, triggerResync, triggerHealth, triggerUnblock, triggerToken, triggerQuota,
	triggerWebhookMissing, triggerWebhookRotation,
}

// dueSteps are the things that may be due.
type dueSteps struct{ blocked, over, unblock, spec, resync, health, quota, token bool }

func (f *facts) due() dueSteps {
	told, _ := f.condition(conditionNamespaceQuota)
	over, blocked := f.quota.Repositories > 0 && f.count > f.quota.Repositories, told.Status == "False"
	// A check that is due by its age alone waits for its slot.
	health := !f.waitsForSlot() && healthDue(f.repo.Status.Health, f.specChanged(), f.now) || f.pulledUnhealthy()
	return dueSteps{
		blocked: over && blocked,
		over:    over && !blocked,
		unblock: blocked && !over,
		spec:    f.specChanged(),
		resync:  f.resyncDue(),
		quota:   f.quotaChanged(),
		health:  health,
		// The token of an unhealthy Repository waits for its next check.
		token: f.tokenDue() && (f.repo.Status.Health.Healthy || health),
	}
}

// trigger returns the first reason. One that is blocked already has its status refreshed
// as often as any other unhealthy one, and no more.
func (d dueSteps) trigger() string {
	if d.blocked && !d.health && !d.quota {
		return ""
	}
	for _, step := range []struct {
		due     bool
		trigger string
	}{
		{d.blocked, triggerBlocked},
		{d.over, triggerOverQuota},
		{d.spec, triggerSpec},
		{d.resync, triggerResync},
		{d.health, triggerHealth},
		{d.unblock, triggerUnblock},
		{d.token, triggerToken},
		{d.quota, triggerQuota},
	} {
		if step.due {
			return step.trigger
		}
	}
	return ""
}

// nextByTime returns when a check or a pull becomes due by time alone; zero is never.
func (f *facts) nextByTime() (at time.Time) {
	health, sync := f.repo.Status.Health, f.repo.Status.Sync
	if health.Checked > 0 {
		at = later(time.UnixMilli(health.Checked).Add(window(health)+time.Millisecond), f.earliest())
	}
	running := f.jobExists || sync.State == api.StatePending || sync.State == api.StateWorking
	if !health.Healthy || !f.repo.Spec.Sync.Enabled || running || sync.Finished == 0 && sync.State == "" {
		return at
	}
	pull := f.nextPull()
	if f.pullOwed || f.dataLost {
		pull = f.now
	}
	if f.interval <= healthyFor {
		return pull // one request to the remote serves both, so the check waits for the next
	}
	return earlier(at, pull)
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

const conditionNamespaceQuota = "NamespaceQuota"

// Stated stands for a limit that the status of each Repository states: it was written there by its
// owner.
const Stated = -1

// Quota are the limits of a namespace; 0 is none.
type Quota struct {
	Repositories int64
	Resources    int64 // of one Repository
}

// orStated returns the quota that holds where the status states another one.
func (q Quota) orStated(stated api.QuotaStatus) Quota {
	if q.Repositories == Stated {
		q.Repositories = stated.MaxRepositories
	}
	if q.Resources == Stated {
		q.Resources = stated.MaxResourcesPerRepository
	}
	return q
}

// quotaChanged reports whether the status states other limits.
func (f *facts) quotaChanged() bool {
	q := f.repo.Status.Quota
	return q.MaxRepositories != f.quota.Repositories || q.MaxResourcesPerRepository != f.quota.Resources
}

// quotaRaised reports whether the last pull left something out for a limit that is higher now, or
// gone.
func (f *facts) quotaRaised() bool {
	limit, was := f.quota.Resources, f.repo.Status.Quota.MaxResourcesPerRepository
	if was == 0 || limit != 0 && limit <= was {
		return false
	}
	c, ok := f.condition(api.ConditionSyncStatus)
	return ok && c.Reason == api.ReasonSyncQuotaExceeded
}

// namespaceQuota returns the condition of a namespace that has count Repositories. Reasons and
// texts are Grafana's.
func (f *facts) namespaceQuota() api.Condition {
	limit := f.quota.Repositories
	c, text := api.Condition{Type: conditionNamespaceQuota, Status: "True", Reason: "WithinQuota"}, "within quota"
	switch {
	case limit == 0:
		c.Reason, c.Message = "QuotaUnlimited", "No quota limits configured"
		return c
	case f.count > limit:
		c.Status = "False"
		c.Reason = "QuotaExceeded"
		text = "namespace quota exceeded"
	case f.count == limit:
		c.Reason, text = "QuotaReached", "namespace quota reached"
	}
	c.Message = fmt.Sprintf("%s: %d/%d repositories", text, f.count, limit)
	return c
}

// resourceQuota returns the condition of what the Repository holds. A pull writes it too,
// in the same words; ok is false until one has counted.
func (f *facts) resourceQuota() (c api.Condition, ok bool) {
	var total int64
	for _, s := range f.repo.Status.Stats {
		total += s.Count
	}
	return api.ResourceQuota(total, f.quota.Resources), len(f.repo.Status.Stats) > 0
}
