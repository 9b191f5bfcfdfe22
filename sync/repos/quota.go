package repos

import (
	"fmt"

	"limpet/sync/api"
)

const namespaceQuota = "NamespaceQuota"

// Stated stands for a limit that the status of each Repository states: whoever
// wrote it there has the say.
const Stated = -1

// Quota are the limits of a namespace; 0 is none.
type Quota struct {
	Repositories int64
	Resources    int64 // of one Repository
}

// over is the quota that holds where the status states another one.
func (q Quota) over(stated api.QuotaStatus) Quota {
	if q.Repositories == Stated {
		q.Repositories = stated.MaxRepositories
	}
	if q.Resources == Stated {
		q.Resources = stated.MaxResourcesPerRepository
	}
	return q
}

// roomier says that the last pull left something out for a limit that is higher
// now, or gone.
func (f *facts) roomier() bool {
	limit, was := f.quota.Resources, f.repo.Status.Quota.MaxResourcesPerRepository
	if was == 0 || limit != 0 && limit <= was {
		return false
	}
	for _, c := range f.repo.Status.Conditions {
		if c.Type == api.ConditionSyncStatus {
			return c.Reason == api.ReasonSyncQuotaExceeded
		}
	}
	return false
}

// namespaceQuota is the condition of a namespace that has count Repositories. Reasons
// and texts are Grafana's.
func (f *facts) namespaceQuota() api.Condition {
	c := api.Condition{Type: namespaceQuota, Status: "True"}
	limit := f.quota.Repositories
	tell := func(reason, text string) api.Condition {
		c.Reason, c.Message = reason, fmt.Sprintf("%s: %d/%d repositories", text, f.count, limit)
		return c
	}
	switch {
	case limit == 0:
		c.Reason, c.Message = "QuotaUnlimited", "No quota limits configured"
		return c
	case f.count > limit:
		c.Status = "False"
		return tell("QuotaExceeded", "namespace quota exceeded")
	case f.count == limit:
		return tell("QuotaReached", "namespace quota reached")
	}
	return tell("WithinQuota", "within quota")
}

// resourceQuota is the condition of what the Repository holds. A pull writes it
// too, in the same words; ok is false until one has counted.
func (f *facts) resourceQuota() (c api.Condition, ok bool) {
	var total int64
	for _, s := range f.repo.Status.Stats {
		total += s.Count
	}
	return api.ResourceQuota(total, f.quota.Resources), len(f.repo.Status.Stats) > 0
}
