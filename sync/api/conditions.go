package api

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Condition is one condition of a status, in the form that Kubernetes gives them.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"` // "True", "False" or "Unknown"
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	LastTransitionTime string `json:"lastTransitionTime,omitempty"` // RFC 3339
}

// The condition of the last pull of a Repository, and its reasons. Source: Grafana.
const (
	ConditionSyncStatus     = "SyncStatus"
	ReasonSyncSuccessful    = "SyncSuccessful"
	ReasonSyncFailed        = "SyncFailed"
	ReasonSyncQuotaExceeded = "SyncQuotaExceeded" // something was left out
	ReasonSyncWarning       = "SyncWarning"       // ours: some files could not be used
)

// ConditionSinkReady is the condition of the directory of a Repository with AnnoSinkDir, of limpet's own. It is False while
// a host has another state on its disk than the last pull; the message begins with the name of the host.
const ConditionSinkReady = "limpet/SinkReady"

// ConditionCommitStatus is there, False, while the Git host of a Repository refuses the statuses of commits. It is of
// limpet's own.
const ConditionCommitStatus = "limpet/CommitStatus"

// Map is the condition as it is stored for an object of that generation. now is the time of the server. old
// is what is stored now, nil for nothing; the time of the last transition stays while the status does.
func (c Condition) Map(now time.Time, generation int64, old map[string]any) map[string]any {
	since := any(now.UTC().Format(time.RFC3339))
	if old["status"] == c.Status && old["lastTransitionTime"] != nil {
		since = old["lastTransitionTime"]
	}
	return map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
		"observedGeneration": generation, "lastTransitionTime": since}
}

// SetConditions sets conditions among those of an object that others own, and returns the
// list and whether it differs. A condition without a status is removed.
func SetConditions(u *unstructured.Unstructured, now time.Time, wanted ...Condition) (list []any, changed bool) {
	list, _, _ = unstructured.NestedSlice(u.Object, "status", "conditions") // a deep copy
	for _, want := range wanted {
		at, old := FindCondition(list, want.Type)
		value := want.Map(now, u.GetGeneration(), old)
		switch {
		case want.Status == "" && at >= 0:
			list, changed = slices.Delete(list, at, at+1), true
		case want.Status == "":
		case at < 0:
			list, changed = append(list, value), true
		case !sameCondition(old, value):
			list[at], changed = value, true
		}
	}
	return list, changed
}

// sameCondition reports whether two stored conditions differ in their times at most.
func sameCondition(a, b map[string]any) bool {
	for _, key := range []string{"status", "reason", "message", "observedGeneration"} {
		if a[key] != b[key] {
			return false
		}
	}
	return true
}

// FindCondition finds the condition of a type in a stored list; -1 is none.
func FindCondition(list []any, kind string) (int, map[string]any) {
	for i, entry := range list {
		if c, ok := entry.(map[string]any); ok && c["type"] == kind {
			return i, c
		}
	}
	return -1, nil
}

// ResourceQuota is the condition of a Repository that has that many objects; a
// limit of 0 is none. Types, reasons and texts are Grafana's.
func ResourceQuota(have, limit int64) Condition {
	within := fmt.Sprintf("Within quota: %d/%d resources", have, limit)
	c := Condition{Type: "ResourceQuota", Status: "True", Reason: "WithinQuota", Message: within}
	switch {
	case limit == 0:
		c.Reason, c.Message = "QuotaUnlimited", "No quota limits configured"
	case have > limit:
		c.Status, c.Reason, c.Message = "False", "QuotaExceeded", fmt.Sprintf("Resource quota exceeded: %d/%d resources", have, limit)
	case have == limit:
		c.Reason, c.Message = "QuotaReached", fmt.Sprintf("Resource quota reached: %d/%d resources", have, limit)
	}
	return c
}
