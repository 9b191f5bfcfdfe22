package source

import (
	"strings"
	"time"

	"limpet/sync/text"
)

// Source is one row of the source list: a GitRepository of Flux, as its controller
// tells of it. limpet shows it and asks its controller; it does not do its work.
type Source struct {
	UID       string        `json:"uid"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	URL       string        `json:"url"` // without user and password
	Ref       string        `json:"ref"` // "branch main", "semver >=1.0.0", "commit 5d41aa9..."
	Provider  string        `json:"provider,omitempty"`
	Verify    string        `json:"verify,omitempty"` // what has to be signed; "" = nothing
	Interval  time.Duration `json:"interval,omitempty"`
	Suspended bool          `json:"suspended,omitempty"`

	State   string    `json:"state"`            // one of the Source states
	Reason  string    `json:"reason,omitempty"` // of the condition that State is from
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of that condition
	// Behind reports that the controller has not seen the last change of the spec.
	Behind bool `json:"behind,omitempty"`

	Artifact   *Artifact   `json:"artifact,omitempty"` // nil = there is none
	Includes   []Include   `json:"includes,omitempty"`
	Verified   string      `json:"verified,omitempty"` // the mode that was verified last
	Conditions []Condition `json:"conditions,omitempty"`

	// Looked is the last look of the controller that it tells of. One that finds
	// nothing new leaves no trace.
	Looked time.Time `json:"looked,omitzero"`
	// Waiting reports that somebody has asked for a look that has not ended yet, at
	// Asked if that is a time. Handled is when the last was asked for that has.
	Waiting  bool      `json:"waiting,omitempty"`
	Asked    time.Time `json:"asked,omitzero"`
	Handled  time.Time `json:"handled,omitzero"`
	Deleting time.Time `json:"deleting,omitzero"`
}

// States of a Source.
const (
	Ready   = "ready"
	Working = "working" // its controller is at work on it
	Failed  = "failed"  // its controller tries again by itself
	Stalled = "stalled" // its controller does nothing until a person changes it
	Pending = "pending" // its controller has not come to it yet
	Unknown = "unknown"
)

// Artifact is what the controller has packed of a source.
type Artifact struct {
	Revision string    `json:"revision"` // "main@sha1:5d41aa9..."
	Digest   string    `json:"digest"`   // "sha256:..."; of the packed bytes
	URL      string    `json:"url"`
	Size     int64     `json:"size,omitempty"` // bytes; 0 = not told
	Updated  time.Time `json:"updated,omitzero"`
}

// Include is another source whose artifact is put into this one.
type Include struct {
	Name     string `json:"name"`
	From     string `json:"from,omitempty"`     // directory there
	To       string `json:"to,omitempty"`       // directory here
	Revision string `json:"revision,omitempty"` // that is in the artifact
}

// Bad reports that a source needs a person.
func (s *Source) Bad() bool { return s.State == Failed || s.State == Stalled }

// Due says in a word or two when the controller looks next, as far as it tells: it
// leaves no trace of a look that found nothing new.
func (s *Source) Due(now time.Time) string {
	switch {
	case s.Suspended:
		return "paused"
	case s.Waiting:
		return "asked"
	case s.State == Pending, s.State == Working:
		return "-"
	case s.State == Stalled:
		return "never"
	case s.State == Failed:
		return "retried"
	case s.Interval <= 0:
		return "-"
	}
	if due := s.Looked.Add(s.Interval); !s.Looked.IsZero() && due.After(now) {
		return "in " + text.Age(due.Sub(now))
	}
	return "<" + text.Age(s.Interval)
}

// DueText says the same in a sentence's part.
func (s *Source) DueText(now time.Time) string {
	every := ""
	if s.Interval > 0 {
		every = ", every " + text.Age(s.Interval)
	}
	switch {
	case s.Suspended:
		return "nothing while it is suspended" + every
	case s.Waiting:
		return "as soon as its controller comes to it, because it was asked for" + every
	case s.State == Pending, s.State == Working:
		return "as soon as its controller comes to it" + every
	case s.State == Stalled:
		return "nothing until somebody changes it or asks for a look"
	case s.State == Failed:
		return "tried again by itself, after up to 15m" + every
	case s.Interval <= 0:
		return "not known: it has no interval"
	}
	if due := s.Looked.Add(s.Interval); !s.Looked.IsZero() && due.After(now) {
		return "in " + text.Age(due.Sub(now)) + every
	}
	return "within " + text.Age(s.Interval) + every + "; looks that find nothing new leave no trace"
}

// Commit is the commit of the artifact, "" when that is not told.
func (s *Source) Commit() string {
	if s.Artifact == nil {
		return ""
	}
	for _, algorithm := range []string{"sha1:", "sha256:"} {
		if i := strings.LastIndex(s.Artifact.Revision, algorithm); i >= 0 {
			return s.Artifact.Revision[i+len(algorithm):]
		}
	}
	return ""
}

// ShortRevision is a revision with its commit in seven letters: main@5d41aa9.
func ShortRevision(revision string) string {
	for _, algorithm := range []string{"sha1:", "sha256:"} {
		if i := strings.LastIndex(revision, algorithm); i >= 0 {
			return revision[:i] + text.ShortRef(revision[i+len(algorithm):])
		}
	}
	return revision
}

// Unmet reports that a condition tells of something wrong. Some types are true when
// all is well, others when it is not. Source: fluxcd/source-controller, api/v1.
func (c Condition) Unmet() bool {
	switch c.Type {
	case "Stalled", "FetchFailed", "IncludeUnavailable", "StorageOperationFailed", "ArtifactOutdated", "BuildFailed":
		return c.Status == "True"
	case "Reconciling":
		return false
	}
	return c.Status != "True"
}

// Condition is one condition of a status. What is met needs no words: Message is
// that of one that is not.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when Status became what it is, if that is known
}
