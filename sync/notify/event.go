// Package notify sends events of objects to webhooks, Slack, Alertmanager and programs. An event is
// kept in the state file until each target has taken it, so that neither a restart nor a target that is down loses one.
package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// Values of Event.Severity.
const (
	Info  = "info"
	Error = "error"
)

// Event is one thing that happened to an object.
type Event struct {
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	APIVersion      string `json:"apiVersion,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Topic is what of the object the event is about; a failure ends with the next Info event of the same topic. "" is the
	// one topic of an object that has no more.
	Topic    string            `json:"topic,omitempty"`
	Severity string            `json:"severity"` // Info or Error
	Reason   string            `json:"reason"`   // in CamelCase
	Message  string            `json:"message"`  // the same for the same failure: it is told once a day
	Time     time.Time         `json:"time"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Quiet has an Info event told only when it ends a failure.
	Quiet bool `json:"-"`

	ID        string   `json:"id"`                  // set by Add
	Recovered []string `json:"recovered,omitempty"` // reasons of the failures that it ends; set by Add
}

// object is the name of what fails and recovers as one.
func (e *Event) object() string {
	return e.Kind + "/" + e.Namespace + "/" + e.Name + "/" + e.Topic
}

const (
	tellAgain    = 24 * time.Hour // the same failure is told once in this time
	mostFailures = 16             // of an object that are remembered as told
)

// failing is what was told about an object since it fails, in the order of the times.
type failing []told

type told struct {
	Failure string    `json:"failure"` // hash of reason and message
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// tell adds a failure; it returns false when it was told within tellAgain.
func (f *failing) tell(e *Event) bool {
	sum := sha256.Sum256([]byte(e.Reason + "\x00" + e.Message))
	next := told{hex.EncodeToString(sum[:8]), e.Reason, e.Time}
	same := func(t told) bool { return t.Failure == next.Failure }
	if at := slices.IndexFunc(*f, same); at >= 0 && e.Time.Sub((*f)[at].At).Abs() < tellAgain { // a clock may jump back
		return false
	}
	all := append(slices.DeleteFunc(*f, same), next)
	*f = all[max(0, len(all)-mostFailures):]
	return true
}

// reasons returns those of all failures, each once.
func (f failing) reasons() (out []string) {
	for _, t := range f {
		if !slices.Contains(out, t.Reason) {
			out = append(out, t.Reason)
		}
	}
	return out
}
