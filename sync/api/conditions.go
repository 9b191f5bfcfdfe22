package api

import (
	"fmt"
	"slices"
	"strings"
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

// ConditionSinkReady is the condition of a directory of AnnoSinkDir, of limpet's own. It is False
// while a host has another state on its disk than the last pull or the artifact, or the program of
// AnnoSinkExec fails; then the message begins with the name of the host.
const ConditionSinkReady = "limpet/SinkReady"

// ConditionCommitStatus is there, False, while the Git host of a Repository refuses the statuses of
// commits. It is of limpet's own.
const ConditionCommitStatus = "limpet/CommitStatus"

// ConditionExternalArtifact is there, False, while the ExternalArtifact of AnnoExternalArtifact cannot
// be kept. It is of limpet's own.
const ConditionExternalArtifact = "limpet/ExternalArtifact"

// Map is the condition as it is stored for an object of that generation. now is the time of the
// server. old is what is stored now, nil for nothing; the time of the last transition stays while
// the status does.
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
	members := []string{"status", "reason", "message", "observedGeneration"}
	return !slices.ContainsFunc(members, func(key string) bool { return a[key] != b[key] })
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

// ConditionVerified is the condition of the signature of what is pulled. It is limpet's
// own, and set only while a Repository asks for it (AnnoGitVerify).
const ConditionVerified = "limpet/SourceVerified"

// Verification is the basis of the condition. It is part of the message, the only member
// of a condition that all writers of conditions keep.
type Verification struct {
	Trust  string // digest of mode, principals and keys
	Object string // hash of the tag object, or of the commit
}

// The form of a Verification at the end of a message.
const (
	trustPrefix  = " [trust "
	objectPrefix = ", object "
	trustSuffix  = "]"
)

// Message returns text with the Verification appended.
func (v Verification) Message(text string) string {
	text += trustPrefix + v.Trust
	if v.Object != "" {
		text += objectPrefix + v.Object
	}
	return text + trustSuffix
}

// VerificationOf returns the Verification in the conditions of a status, zero when there is none.
func VerificationOf(conditions []Condition) (v Verification) {
	for _, c := range conditions {
		at := strings.LastIndex(c.Message, trustPrefix)
		if c.Type != ConditionVerified || at < 0 {
			continue
		}
		encoded, ended := strings.CutSuffix(c.Message[at+len(trustPrefix):], trustSuffix)
		if !ended {
			continue
		}
		v.Trust, v.Object, _ = strings.Cut(encoded, objectPrefix)
	}
	return v
}
