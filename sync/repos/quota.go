package repos

import (
	"fmt"

	"limpet/sync/api"
)

const conditionNamespaceQuota = "NamespaceQuota"

// Stated stands for a limit that the status of each Repository states: it was written
// there by its owner.
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

// overQuota reports whether the namespace has more Repositories than it may have.
func (f *facts) overQuota() bool {
	return f.quota.Repositories > 0 && f.count > f.quota.Repositories
}

// blocked reports whether the status says so already.
func (f *facts) blocked() bool {
	c, ok := f.condition(conditionNamespaceQuota)
	return ok && c.Status == "False"
}

// quotaChanged reports whether the status states other limits.
func (f *facts) quotaChanged() bool {
	q := f.repo.Status.Quota
	return q.MaxRepositories != f.quota.Repositories || q.MaxResourcesPerRepository != f.quota.Resources
}

// quotaRaised reports whether the last pull left something out for a limit that is higher
// now, or gone.
func (f *facts) quotaRaised() bool {
	limit, was := f.quota.Resources, f.repo.Status.Quota.MaxResourcesPerRepository
	if was == 0 || limit != 0 && limit <= was {
		return false
	}
	c, ok := f.condition(api.ConditionSyncStatus)
	return ok && c.Reason == api.ReasonSyncQuotaExceeded
}

// namespaceQuota returns the condition of a namespace that has count Repositories.
// Reasons and texts are Grafana's.
func (f *facts) namespaceQuota() api.Condition {
	limit := f.quota.Repositories
	condition := func(status, reason, text string) api.Condition {
		message := fmt.Sprintf("%s: %d/%d repositories", text, f.count, limit)
		return api.Condition{Type: conditionNamespaceQuota, Status: status, Reason: reason, Message: message}
	}
	switch {
	case limit == 0:
		return api.Condition{Type: conditionNamespaceQuota, Status: "True", Reason: "QuotaUnlimited", Message: "No quota limits configured"}
	case f.count > limit:
		return condition("False", "QuotaExceeded", "namespace quota exceeded")
	case f.count == limit:
		return condition("True", "QuotaReached", "namespace quota reached")
	}
	return condition("True", "WithinQuota", "within quota")
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
