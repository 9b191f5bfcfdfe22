package source

import (
	"strings"
	"time"

	"limpet/sync/text"
)

// Source is one row of the source list: a source of Flux with its status.
type Source struct {
	Kind      string        `json:"kind,omitempty"` // as GitRepository; "" of an older agent, whose sources are all of that
	UID       string        `json:"uid"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	URL       string        `json:"url"` // without user and password
	Ref       string        `json:"ref"` // "branch main", "semver >=1.0.0", "commit 5d41aa9..."
	Provider  string        `json:"provider,omitempty"`
	Verify    string        `json:"verify,omitempty"` // what must be signed; "" = nothing
	Interval  time.Duration `json:"interval,omitempty"`
	Suspended bool          `json:"suspended,omitempty"`
	Sink      string        `json:"sink,omitempty"` // directory that its tree is written to

	State   string    `json:"state"`            // one of the Source states
	Reason  string    `json:"reason,omitempty"` // of the condition behind State
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of that condition
	// Behind reports whether the controller has not observed the last change of the spec.
	Behind bool `json:"behind,omitempty"`

	Artifact   *Artifact   `json:"artifact,omitempty"` // nil = there is none
	Includes   []Include   `json:"includes,omitempty"`
	Verified   string      `json:"verified,omitempty"` // last verified mode
	Conditions []Condition `json:"conditions,omitempty"`

	// Looked is the time of the last known reconciliation. One that finds no change is not recorded in
	// the status.
	Looked time.Time `json:"looked,omitzero"`
	// Next is when this agent reconciles it; zero = not known, or another controller does.
	Next time.Time `json:"next,omitzero"`
	// Waiting reports whether a requested reconciliation has not finished, with its time in Asked
	// if that is known. Handled is the time of the last handled request.
	Waiting  bool      `json:"waiting,omitempty"`
	Asked    time.Time `json:"asked,omitzero"`
	Handled  time.Time `json:"handled,omitzero"`
	Deleting time.Time `json:"deleting,omitzero"`
}

// States of a Source.
const (
	Ready   = "ready"
	Working = "working" // reconciliation runs
	Failed  = "failed"  // the controller retries
	Stalled = "stalled" // the controller waits for a change of the spec
	Pending = "pending" // not reconciled yet
	Unknown = "unknown"
)

// Artifact is the archive that the controller made of a source.
type Artifact struct {
	Revision string    `json:"revision"` // "main@sha1:5d41aa9..."
	Digest   string    `json:"digest"`   // "sha256:..."; of the packed bytes
	URL      string    `json:"url"`
	Size     int64     `json:"size,omitempty"` // bytes; 0 = unknown
	Updated  time.Time `json:"updated,omitzero"`
}

// Include is another source whose artifact is included in this one.
type Include struct {
	Name     string `json:"name"`
	From     string `json:"from,omitempty"`     // directory there
	To       string `json:"to,omitempty"`       // directory here
	Revision string `json:"revision,omitempty"` // in the artifact
}

// Flag returns the flag of commands that names the kind of a source; "" for the default.
func (s *Source) Flag() string {
	if s.Kind == "" || s.Kind == "GitRepository" {
		return ""
	}
	return " --kind " + strings.ToLower(s.Kind)
}

// Bad reports whether a source failed or stalled.
func (s *Source) Bad() bool { return s.State == Failed || s.State == Stalled }

// Unready reports whether a source is not ready, by no suspension.
func (s *Source) Unready() bool { return s.State != Ready && !s.Suspended }

// Due returns in a word or two when the next reconciliation is due, as far as known:
// one without changes is not recorded in the status.
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
	case s.Next.After(now):
		return "in " + text.Age(s.Next.Sub(now))
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

// DueText is Due with the interval.
func (s *Source) DueText(now time.Time) string {
	due := strings.Replace(s.Due(now), "<", "within ", 1)
	if s.Interval > 0 {
		due += ", every " + text.Age(s.Interval)
	}
	return due
}

// Commit returns the commit of the artifact, "" when it is unknown.
func (s *Source) Commit() string {
	if s.Artifact == nil {
		return ""
	}
	_, commit := cutCommit(s.Artifact.Revision)
	return commit
}

// ShortRevision returns a revision with its commit cut to seven digits: main@5d41aa9.
func ShortRevision(revision string) string {
	before, commit := cutCommit(revision)
	return before + text.ShortRef(commit)
}

// cutCommit returns the commit of a revision, "" for none, and what stands before its algorithm.
func cutCommit(revision string) (before, commit string) {
	for _, algorithm := range []string{"sha1:", "sha256:"} {
		if i := strings.LastIndex(revision, algorithm); i >= 0 {
			return revision[:i], revision[i+len(algorithm):]
		}
	}
	return revision, ""
}

// Unmet reports whether a condition is abnormal. Some types are True when all is
// well, others when it is not. Source: fluxcd/source-controller, api/v1.
func (c Condition) Unmet() bool {
	switch c.Type {
	case "Stalled", "FetchFailed", "IncludeUnavailable", "StorageOperationFailed", "ArtifactOutdated", "BuildFailed", "Drifted":
		return c.Status == "True"
	case "Reconciling":
		return false
	}
	return c.Status != "True"
}

// Condition is one condition of a status. Message is set only when it is not met.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"` // last transition; zero = unknown
}
