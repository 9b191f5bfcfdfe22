package repos

import (
	"fmt"

	"limpet/sync/api"
)

const conditionNamespaceQuota = "NamespaceQuota"

// Stated stands for a limit that the status of each Repository states: it was written there by its owner.
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

// quotaRaised reports whether the last pull left something out for a limit that is higher now, or gone.
func (f *facts) quotaRaised() bool {
	limit, was := f.quota.Resources, f.repo.Status.Quota.MaxResourcesPerRepository
	if was == 0 || limit != 0 && limit <= was {
		return false
	}
	c, ok := f.condition(api.ConditionSyncStatus)
	return ok && c.Reason == api.ReasonSyncQuotaExceeded
}

// namespaceQuota returns the condition of a namespace that has count Repositories. Reasons and texts are Grafana's.
func (f *facts) namespaceQuota() api.Condition {
	limit := f.quota.Repositories
	c, text := api.Condition{Type: conditionNamespaceQuota, Status: "True", Reason: "WithinQuota"}, "within quota"
	switch {
	case limit == 0:
		c.Reason, c.Message = "QuotaUnlimited", "No quota limits configured"
		return c
	case f.count > limit:
		c.Status, c.Reason, text = "False", "QuotaExceeded", "namespace quota exceeded"
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
