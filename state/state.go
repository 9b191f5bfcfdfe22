// Package state keeps limpet's one local file: claims, progress marks, history, snapshots for the offline dashboard,
// small facts, sealed secrets and the objects of the embedded API.
//
// Invariants:
//   - one bbolt file, opened by one process at a time; transactions never leave the package;
//   - every value is a frame that carries its own checksum, bound to the bucket and key where it belongs, and every
//     transaction carries the count and the sum of all frames, because bbolt itself returns damaged, stale and missing
//     values without a word;
//   - all writes go through one goroutine that turns waiting requests into one transaction: one fsync per group;
//   - an acknowledged write has been fsynced;
//   - after an unclean stop the file is first opened in a child process, because bbolt panics or faults on damage;
//   - damage is never repaired in place: the file is set aside, what can be verified is carried into a new one.
package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"limpet/state/frame"
)

// Sizes and waits. Bytes and durations.
const (
	// defaultMaxSize is the size cap of the file where Options sets none: space for about 200,000 records of 770
	// bytes, and little enough for a small board.
	defaultMaxSize = 256 << 20

	// lockWait is how long Open waits for another process to let go of the file before it gives a *LockedError.
	// It stays below the second that users were promised, the rest is for reading the owner's note.
	lockWait = 800 * time.Millisecond

	// commandWait is lockWait of an agent that finds a command in the file: it is done soon, and the start of an agent at
	// boot has no other try.
	commandWait = 5 * time.Second

	// growStep is how much the file grows at a time. bbolt's own 16 MiB would make a fresh file large.
	growStep = 1 << 20

	// compactAbove and compactShare: a file is rewritten at start when it has more free bytes than the first, and they
	// are more than this share (percent) of it. Below that the copy costs more than the space is worth.
	compactAbove = 8 << 20
	compactShare = 50

	// inlineCheck is the size up to which even a cleanly closed file is verified whole before it is used: 4 MiB take
	// about 5 ms, a larger file would break the promise of 25 ms to the first use and is verified later, by a reader in
	// the background.
	inlineCheck = 4 << 20

	// verifyAfter is how long after a clean open of a larger file the background verification begins: late enough to
	// stay out of the way of the first claims, and short commands never pay for it.
	verifyAfter = 30 * time.Second
)

// Options say which file to open and how.
type Options struct {
	// Path of the bbolt file. Missing directories are made with mode 0700, the file has mode 0600. A symbolic link is
	// followed, so that quarantine and compaction replace the file and not the link.
	Path string

	// Version of the program and Socket of the agent are written into the owner file for the process that finds the
	// state locked.
	Version string
	Socket  string

	// maxSize is the cap of the file in bytes; 0 means defaultMaxSize. Writes that need more give ErrFull; deletes and
	// the writes of running claims have a reserve beyond it.
	maxSize int64

	// Logger receives what Open repaired and what was found damaged. nil discards.
	Logger *slog.Logger

	// probe opens and checks the file in another process after an unclean stop; an error that is ErrCorrupt means
	// damaged, a *SchemaError means newer. nil means probeInChild.
	probe func(ctx context.Context, path string) error
}

// Report lists what Open found and did.
type Report struct {
	Created     bool   // there was no file
	Unclean     bool   // the last process did not close it
	Quarantined string // path where the damaged file was set aside; empty when it was sound
	Damage      string // what was wrong with it
	Carried     int    // records carried from the damaged file into the new one
	Lost        int    // records known to be lost; at least 1 when anything is missing
	Migrated    string // path of the copy that was kept before the schema was raised
	Compacted   bool   // free space was given back
}

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

// SharedDirectoryError reports a directory that others may write to: they could put links and files of theirs in the
// place of ours.
type SharedDirectoryError struct {
	Dir  string
	Mode fs.FileMode
}

func (e *SharedDirectoryError) Error() string {
	return fmt.Sprintf("state directory %s is writable by others (mode %04o)", e.Dir, e.Mode.Perm())
}

// LockedError names the process that holds the file. Fields are zero when the holder left no note.
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
