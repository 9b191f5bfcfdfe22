package members

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// What a Lease carries beside its spec: the kind of its holder and its scope.
const (
	labelRole      = "limpet/role"
	role           = "controller"
	annoNamespace  = "limpet/namespace"
	annoSelector   = "limpet/selector"
	annoAgent      = "limpet/agent"
	namePrefix     = "limpet-"
	maxExpiry      = 10 * time.Minute // of others: one that says more is not believed
	microTimeForm  = metav1.RFC3339Micro
	secondsOfLease = "leaseDurationSeconds"

	transitionsOfLease = "leaseTransitions"
)

// selectRole is the label selector of the Leases of this room.
const selectRole = labelRole + "=" + role

// read is the record of a Lease; false when it is none of an agent.
func read(u *unstructured.Unstructured) (record, bool) {
	rec := record{name: u.GetName(), agent: u.GetAnnotations()[annoAgent], version: u.GetResourceVersion()}
	rec.holder, _, _ = unstructured.NestedString(u.Object, "spec", "holderIdentity")
	rec.turn, _, _ = unstructured.NestedInt64(u.Object, "spec", transitionsOfLease)
	seconds, _, _ := unstructured.NestedInt64(u.Object, "spec", secondsOfLease)
	if u.GetLabels()[labelRole] != role || rec.holder == "" || seconds <= 0 {
		return rec, false
	}
	rec.expiry = time.Duration(min(seconds, int64(maxExpiry/time.Second))) * time.Second
	rec.scope.Namespace = u.GetAnnotations()[annoNamespace]
	if s := u.GetAnnotations()[annoSelector]; s != "" {
		selector, err := labels.Parse(s)
		if err != nil {
			return rec, false
		}
		rec.scope.Selector = selector
	}
	return rec, true
}

// write fills in the Lease of this agent: a new one, or the one that is there.
func (m *Members) write(u *unstructured.Unstructured, now time.Time) {
	u.SetAPIVersion(leases.GroupVersion().String())
	u.SetKind("Lease")
	u.SetName(m.name)
	u.SetNamespace(m.o.Namespace)
	u.SetLabels(map[string]string{labelRole: role})
	notes := map[string]string{annoAgent: m.o.Agent, annoNamespace: m.o.Scope.Namespace}
	if s := text(m.o.Scope.Selector); s != "" {
		notes[annoSelector] = s
	}
	u.SetAnnotations(notes)
	spec, _ := u.Object["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
	}
	stamp := now.UTC().Format(microTimeForm)
	if spec["holderIdentity"] != m.process {
		if spec["holderIdentity"] != nil {
			n, _ := spec[transitionsOfLease].(int64)
			spec[transitionsOfLease] = n + 1
		}
		spec["holderIdentity"], spec["acquireTime"] = m.process, stamp
	}
	spec["renewTime"], spec[secondsOfLease] = stamp, int64(m.o.Expiry/time.Second)
	u.Object["spec"] = spec
}

// leaseName is the name of the Lease of the agent with an id, whatever characters
// that has.
func leaseName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return namePrefix + hex.EncodeToString(sum[:8])
}
