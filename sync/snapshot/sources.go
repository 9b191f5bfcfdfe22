package snapshot

import "limpet/sync/source"

// Rows of sources are those of package source.
type (
	Source    = source.Source
	Artifact  = source.Artifact
	Include   = source.Include
	Condition = source.Condition
)

// States of a Source.
const (
	SourceReady   = source.Ready
	SourceWorking = source.Working
	SourceFailed  = source.Failed
	SourceStalled = source.Stalled
	SourcePending = source.Pending
	SourceUnknown = source.Unknown
)

// ShortRevision returns a revision with its commit in seven letters: main@5d41aa9.
func ShortRevision(revision string) string { return source.ShortRevision(revision) }
