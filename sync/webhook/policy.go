package webhook

import "limpet/sync/resources"

// Policy decides between an incremental and a full pull for a push.
type Policy interface {
	Incremental(push Event) bool
}

// Comparing is the policy where limpet alone runs the pulls: they compare the
// commits themselves, whatever the payload says, and fall back to a full pull where
// they must.
type Comparing struct{}

// Incremental implements Policy.
func (Comparing) Incremental(Event) bool { return true }

// Listed is the policy where Grafana's workers may run the pull: it follows the
// payload. Source: Grafana's incremental sync policy.
type Listed struct {
	Most int // changes of an incremental pull; 0 = no limit
}

// Incremental implements Policy. It is false when the payload is incomplete, and where a
// directory lost the file that stands for it and nothing else: to Grafana's
// incremental pull its folder would stay.
func (l Listed) Incremental(push Event) bool {
	if push.Partial || l.Most > 0 && push.Changes > l.Most {
		return false
	}
	_, lost := resources.LostMarker(push.Deleted)
	return !lost
}
