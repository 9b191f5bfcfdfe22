// Package state keeps limpet's one local file: claims, progress marks, history, snapshots for the
// offline dashboard, small facts, sealed secrets and the objects of the embedded API.
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
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"limpet/state/frame"
	"limpet/state/repair"
)

// Sizes and waits. Bytes and durations.
const (
	// defaultMaxSize is the size cap of the file where Options sets none: space for 50,000 dashboards
	// of 80 kB, which take a fourth of that.
	defaultMaxSize = 1 << 30

	// lockWait is how long Open waits for another process to let go of the file before it gives a
	// *LockedError. It stays below the second that users were promised, the rest is for reading the
	// owner's note.
	lockWait = 800 * time.Millisecond

	// commandWait is lockWait of an agent that finds a command in the file: it is done soon, and the
	// start of an agent at boot has no other try.
	commandWait = 5 * time.Second

	// growStep is how much the file grows at a time. bbolt's own 16 MiB would make a fresh file large.
	growStep = 1 << 20

	// compactAbove and compactShare: a file is rewritten at start when it has more free bytes than the
	// first, and they are more than this share (percent) of it. Below that the copy costs more than
	// the space is worth.
	compactAbove = 8 << 20
	compactShare = 50

	// inlineCheck is the size up to which even a cleanly closed file is verified whole before it is
	// used: 4 MiB take about 5 ms, a larger file would break the promise of 25 ms to the first use and
	// is verified later, by a reader in the background.
	inlineCheck = 4 << 20

	// verifyAfter is how long after a clean open of a larger file the background verification begins:
	// late enough to stay out of the way of the first claims, and short commands never pay for it.
	verifyAfter = 30 * time.Second
)

// Options say which file to open and how.
type Options struct {
	// Path of the bbolt file. Missing directories are made with mode 0700, the file has mode 0600. A
	// symbolic link is followed, so that quarantine and compaction replace the file and not the link.
	Path string

	// Version of the program and Socket of the agent are written into the owner file for the process
	// that finds the state locked.
	Version string
	Socket  string

	// ReadOnly changes no byte of the file, and makes, renames and removes none. Writes give
	// ErrReadOnly, and so does a file of an older schema; a damaged one gives ErrCorrupt, a missing
	// one fs.ErrNotExist.
	ReadOnly bool

	// MaxSize is the cap of the file in bytes; 0 means 1 GiB. Writes that need more give ErrFull;
	// deletes and the writes of running claims have a reserve beyond it. A file that is larger opens.
	MaxSize int64

	// Logger receives what Open repaired and what was found damaged. nil discards.
	Logger *slog.Logger

	// probe opens and checks the file in another process after an unclean stop; an error that is
	// ErrCorrupt means damaged, a *SchemaError means newer. nil means probeInChild.
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

// SharedDirectoryError reports a directory that others may write to: they could put links and files
// of theirs in the place of ours.
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

// Store is an open state file. All methods are safe for concurrent use.
type Store struct {
	path    string
	maxSize int64
	log     *slog.Logger
	owner   *ownerFile

	readOnly bool // see Options
	requests chan *request
	stop     context.CancelFunc // ends life
	life     context.Context    // the scope of the store's own goroutines: from Open to Close
	done     sync.WaitGroup     // of the writer and the background verification
	files    sync.WaitGroup     // of open files: the current one and those that are still read after a compaction

	// damaged is set, and hurt closed, when a record or page was found damaged: the unclean marker
	// then stays, so that the next Open verifies the file and rebuilds it.
	damaged  atomic.Bool
	damagedC chan struct{}

	// publish is called by the writer after each commit that changed objects.
	publish atomic.Pointer[func([]ObjectEvent)]

	refused atomic.Bool // the disk refused the last transaction; see DiskError
	seal    sealer
	objects frame.Compression
	tails   frame.Compression // of Tail, whose callers the writer never waits for
	reserve *reserveFile      // of the writer

	// mu guards cur and closed.
	mu     sync.Mutex
	cur    *file
	closed bool

	closing sync.Once
	closeIs error
}

// file is an open bbolt file that is closed by its last user, so that a long reader never holds up
// the compaction that replaces it.
type file struct {
	db      *bbolt.DB
	handle  *os.File // the one inside db
	users   int      // guarded by Store.mu; the store itself is one
	broken  bool     // a write transaction died in bbolt; only the writer and, after it, Close read this
	touched touched  // by reads and writes
}

// acquire returns the current file; release gives it back.
func (s *Store) acquire() (*file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.cur.users++
	return s.cur, nil
}

func (s *Store) release(f *file) {
	s.mu.Lock()
	f.users--
	last := f.users == 0
	s.mu.Unlock()
	if last {
		if err := f.close(); err != nil {
			s.log.Warn("close of the state file", "path", s.path, "err", err)
		}
		s.files.Done()
	}
}

// view runs fn in a read transaction. What fn keeps must be copied.
func (s *Store) view(ctx context.Context, fn func(view) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	f, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(f)
	return s.reportDamage(repair.Guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error { return fn(view{tx, &f.touched}) })
	}))
}

// read returns what fn reads in one transaction.
func read[T any](ctx context.Context, s *Store, fn func(view) (T, error)) (out T, err error) {
	err = s.view(ctx, func(v view) (err error) {
		out, err = fn(v)
		return err
	})
	return out, err
}

// OnObjects sets the function that is called after each commit that changed objects, in commit
// order, before the writers of that commit hear of it. It is set once, before the first use, and
// must not block.
func (s *Store) OnObjects(fn func([]ObjectEvent)) { s.publish.Store(&fn) }

// Damaged returns a channel that is closed when a record or page of the open file was found
// damaged. Then what is not damaged can still be read, and Close and Open rebuild the file.
func (s *Store) Damaged() <-chan struct{} { return s.damagedC }

// Close ends the writer, makes the file ready for a quick open and removes the unclean marker. It
// waits for reads in flight, Backup included. Later calls return the first result.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeIs = s.close() })
	return s.closeIs
}

func (s *Store) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.done.Wait()
	f := s.cur // only now: a compaction that was under way has put another in its place
	sound := !s.damaged.Load() && !s.readOnly
	if sound {
		if err := f.syncFree(); err != nil {
			// Everything is durable; only the next open will be slower.
			s.log.Info("state file closes without its list of free pages", "path", s.path, "err", err)
		}
	}
	s.release(f)
	s.files.Wait()
	if sound {
		if err := writeSeal(s.path); err != nil {
			s.log.Info("state file closes without a seal", "path", s.path, "err", err)
		}
	}
	return s.owner.release(sound)
}

// now is the time that is written into frames. The wall clock is right here: stamps are for people
// and for choosing the newer of two copies.
func now() time.Time { return time.Now() }

// boltOptions are the ones every file of limpet is opened with. The map reserves address space for
// the whole size cap, so that bbolt never waits for readers to map again. maxSize 0 means no cap.
func boltOptions(maxSize int64) *bbolt.Options {
	o := &bbolt.Options{Timeout: lockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
	if maxSize > 0 {
		o.MaxSize = int(min(hardLimit(maxSize), math.MaxInt))
		o.InitialMmapSize = o.MaxSize
		if strconv.IntSize == 32 { // a compaction maps two files
			o.InitialMmapSize = min(o.MaxSize, 512<<20)
		}
	}
	return o
}

// hardLimit is where bbolt itself stops growing: the cap, the reserve for deletes and running
// claims of one eighth but at least 1 MiB, and the step by which bbolt grows.
func hardLimit(maxSize int64) int64 { return maxSize + max(maxSize/8, 1<<20) + growStep }

// openBolt opens a bbolt file under the guard.
func openBolt(path string, o *bbolt.Options) (*file, error) {
	f := &file{users: 1}
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		h, err := os.OpenFile(name, flag, mode)
		f.handle = h
		return h, err
	}
	err := repair.Guard(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, o)
		return repair.OpenError(err)
	})
	if err != nil {
		if f.handle != nil {
			// After a panic bbolt does not close it, nor release its lock. A second close is harmless.
			_ = f.handle.Close()
		}
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f.db.AllocSize = growStep
	return f, nil
}

// close closes the file. A broken one is only unlocked: bbolt would wait for its own lost
// transaction.
func (f *file) close() error {
	if f.broken {
		return f.handle.Close()
	}
	return repair.Guard(f.db.Close)
}
