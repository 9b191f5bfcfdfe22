package repos

import (
	"time"

	"limpet/sync/api"
)

// minInterval is the shortest period of pulls of one Repository, whatever its
// spec says. Source: the default of Grafana's min_sync_interval.
const minInterval = 10 * time.Second

// facts is what is known of a Repository before anybody is asked. All times are
// the server's.
type facts struct {
	now        time.Time
	uid        string
	generation int64
	repo       api.Repository
	interval   time.Duration // of pulls
	quota      Quota         // that holds
	count      int64         // Repositories of the namespace that are not being deleted

	start start     // of the controller
	asked time.Time // when the remote was asked last because of the interval; zero = not by this process

	after bool // the last pull began after this process saw this generation first
	job   bool // a sync job exists
	gone  bool // the status names a pull under way whose job exists no more
	owed  bool // a pull of everything could not be queued because another one was under way
	lost  bool // what was pulled may have been lost since

	trust     string // what is asked of signatures, see Trust
	signedTag bool   // of a tag object
	rekeyed   bool   // what was pulled was judged by other keys of signers, and no pull was asked for since
	retagged  bool   // the tag is another object than the one that was judged
	unjudged  bool   // what was pulled was judged by the keys of another agent

	settled int64       // a generation of our own making, which asks for nothing
	token   *tokenFacts // nil = no token is to be minted
}

// start is when a controller began and how many Repositories there were, to
// spread what became due while nobody looked.
type start struct {
	at    time.Time
	count int
}

// intervalOf is the period of pulls that a Repository asks for.
func intervalOf(repo api.Repository) time.Duration {
	return max(time.Duration(repo.Spec.Sync.IntervalSeconds)*time.Second, minInterval)
}

// specChanged says that nobody has dealt with the spec as it is.
func (f *facts) specChanged() bool { return !f.observed() && f.generation != f.settled }

// observed says that the status tells the generation that is.
func (f *facts) observed() bool { return f.generation == f.repo.Status.ObservedGeneration }

// over says that the namespace has more Repositories than it may have.
func (f *facts) over() bool { return f.quota.Repositories > 0 && f.count > f.quota.Repositories }

// blocked says that the status tells so already.
func (f *facts) blocked() bool {
	for _, c := range f.repo.Status.Conditions {
		if c.Type == namespaceQuota {
			return c.Status == "False"
		}
	}
	return false
}

// quotaChanged says that the status tells other limits.
func (f *facts) quotaChanged() bool {
	q := f.repo.Status.Quota
	return q.MaxRepositories != f.quota.Repositories || q.MaxResourcesPerRepository != f.quota.Resources
}

// pulledWhole says that everything has been pulled under the spec as it is,
// although nobody has noted that yet: a pull that began after the change has ended.
func (f *facts) pulledWhole() bool {
	sync := f.repo.Status.Sync
	return f.after && !sync.Incremental && (sync.State == api.StateSuccess || sync.State == api.StateWarning)
}

// trigger is why a Repository is looked into; "" is for no reason, so that
// nothing is asked and nothing written. Source: the order of Grafana's
// repository controller.
type trigger string

// Triggers, the first that applies.
const (
	blockedOverQuota trigger = "blocked_over_quota"
	overQuota        trigger = "over_quota"
	specChanged      trigger = "spec_changed"
	resyncInterval   trigger = "resync_interval"
	healthStale      trigger = "health_stale"
	unblock          trigger = "unblock"
	tokenGeneration  trigger = "token_generation"
	quotaChanged     trigger = "quota_changed"
)

// Triggers are all reasons for which a Repository is looked into, as Grafana names
// them.
var Triggers = []string{string(blockedOverQuota), string(overQuota), string(specChanged), string(resyncInterval), string(healthStale), string(unblock),
	string(tokenGeneration), string(quotaChanged), string(webhookMissing), string(webhookRotation)}

// flags are the things that may be due.
type flags struct {
	blocked, over, unblock      bool
	spec, resync, health, quota bool
	token                       bool
}

func (f *facts) flags() flags {
	over, blocked := f.over(), f.blocked()
	return flags{
		blocked: over && blocked, over: over && !blocked, unblock: blocked && !over,
		spec: f.specChanged(), resync: f.resyncDue(), quota: f.quotaChanged(),
		health: f.healthDue(),
		// What is not in order has its token looked after when it is looked after itself.
		token: f.tokenDue() && (f.repo.Status.Health.Healthy || f.healthDue()),
	}
}

// healthDue is the rule of that name. A check that is due by its age alone, since
// nobody has looked, waits for its place.
func (f *facts) healthDue() bool {
	h := f.repo.Status.Health
	if h.Checked > 0 && !f.specChanged() && f.now.Before(f.start.first(f.uid, f.interval)) {
		return false
	}
	return healthDue(h, f.specChanged(), f.now)
}

// trigger chooses the first reason. One that is blocked already has its status
// refreshed as often as any other that is not in order, and no more.
func (f flags) trigger() trigger {
	switch {
	case f.blocked && (f.health || f.quota):
		return blockedOverQuota
	case f.blocked:
		return ""
	case f.over:
		return overQuota
	case f.spec:
		return specChanged
	case f.resync:
		return resyncInterval
	case f.health:
		return healthStale
	case f.unblock:
		return unblock
	case f.token:
		return tokenGeneration
	case f.quota:
		return quotaChanged
	}
	return ""
}
