package repos

import (
	"fmt"

	"limpet/sync/api"
)

const namespaceQuota = "NamespaceQuota"

// quotaOf is the condition of a namespace that has count Repositories. Reasons
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
