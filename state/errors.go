package state

import (
	"errors"
	"fmt"
	"time"

	"limpet/state/frame"
)

// Errors of the file's format; package frame documents them.
var (
	ErrFull     = frame.ErrFull
	ErrReadOnly = frame.ErrReadOnly
	ErrClosed   = frame.ErrClosed
	ErrCorrupt  = frame.ErrCorrupt
	ErrForeign  = frame.ErrForeign
)

// SchemaError reports that a newer program wrote the file. The file was not touched.
type SchemaError = frame.SchemaError

var (
	// ErrNotFound is returned when there is no record under the key.
	ErrNotFound = errors.New("not in the state file")

	// ErrSealed is returned when a secret cannot be opened with the key at hand.
	ErrSealed = errors.New("secret was sealed with another key")
)

// LockedError says which process holds the file. Fields are zero when the holder left no note.
type LockedError struct {
	Path    string
	PID     int
	Version string
	Since   time.Time
	Socket  string
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("state file %s is in use by another process", e.Path)
	}
	return fmt.Sprintf("state file %s is in use by process %d (since %s)", e.Path, e.PID, e.Since.Format(time.RFC3339))
}
