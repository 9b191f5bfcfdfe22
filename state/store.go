package state

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"limpet/state/repair"
)

// Store is an open state file. All methods are safe for concurrent use.
type Store struct {
	path    string
	maxSize int64
	log     *slog.Logger
	owner   *ownerFile

	requests chan *request
	stop     context.CancelFunc // ends life
	life     context.Context    // the scope of the store's own goroutines: from Open to Close
	done     sync.WaitGroup     // of the writer and the background verification
	files    sync.WaitGroup     // of open files: the current one and those that are still read after a compaction

	// damaged is set, and hurt closed, when a record or page was found damaged: the unclean marker then stays, so that
	// the next Open verifies the file and rebuilds it.
	damaged  atomic.Bool
	damagedC chan struct{}

	// publish is called by the writer after each commit that changed objects.
	publish atomic.Pointer[func([]ObjectEvent)]

	refused atomic.Bool // the disk refused the last transaction; see DiskError
	seal    sealer
	reserve *reserveFile // of the writer

	// mu guards cur and closed.
	mu     sync.Mutex
	cur    *file
	closed bool

	closing sync.Once
	closeIs error
}

// file is an open bbolt file that is closed by its last user, so that a long reader never holds up the compaction that
// replaces it.
type file struct {
	db      *bbolt.DB
	handle  *os.File // the one inside db
	users   int      // guarded by Store.mu; the store itself is one
	broken  bool     // a write transaction died in bbolt; only the writer and, after it, Close read this
	touched touched  // by reads
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

// OnObjects sets the function that is called after each commit that changed objects, in commit order, before the
// writers of that commit hear of it. It is set once, before the first use, and must not block.
func (s *Store) OnObjects(fn func([]ObjectEvent)) { s.publish.Store(&fn) }

// Damaged returns a channel that is closed when a record or page of the open file was found damaged. Then what is not
// damaged can still be read, and Close and Open rebuild the file.
func (s *Store) Damaged() <-chan struct{} { return s.damagedC }

// Close ends the writer, makes the file ready for a quick open and removes the unclean marker. It waits for reads in
// flight, Backup included. Later calls return the first result.
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
	sound := !s.damaged.Load()
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

// now is the time that is written into frames. The wall clock is right here: stamps are for people and for choosing the
// newer of two copies.
func now() time.Time { return time.Now() }

// boltOptions are the ones every file of limpet is opened with. The map reserves address space for the whole size cap,
// so that bbolt never waits for readers to map again. maxSize 0 means no cap.
func boltOptions(maxSize int64) *bbolt.Options {
	o := &bbolt.Options{Timeout: lockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
	if maxSize > 0 {
		o.MaxSize = int(hardLimit(maxSize))
		o.InitialMmapSize = o.MaxSize
	}
	return o
}

// hardLimit is where bbolt itself stops growing: the cap, the reserve for deletes and running claims of one eighth but at
// least 1 MiB, and the step by which bbolt grows.
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

// close closes the file. A broken one is only unlocked: bbolt would wait for its own lost transaction.
func (f *file) close() error {
	if f.broken {
		return f.handle.Close()
	}
	return repair.Guard(f.db.Close)
}

// Pages of the file that were read through the memory map count as memory of this process until they are
// released: after one full read that is the size of the file. They are released now and then while reading. The page
// cache keeps what it has memory for, and a later access maps it again without a read from disk.

const (
	// releaseAfter is how many bytes of records are read between two releases. Reading one maps its page and those
	// around it in the file, which are those of any other records: 16 pages on Linux. So this is 2 MiB of the map.
	releaseAfter = 128 << 10
	// pageOfRecord is what a single record counts for.
	pageOfRecord = 4 << 10
)

// touched counts what was read through a memory map since the last release. A nil one counts nothing.
type touched struct{ bytes atomic.Int64 }

// add counts n bytes and gives the map of tx back when it is time to.
func (t *touched) add(tx *bbolt.Tx, n int) {
	if t == nil {
		return
	}
	if seen := t.bytes.Add(int64(n)); seen < releaseAfter || !t.bytes.CompareAndSwap(seen, 0) {
		return
	}
	// The map cannot move while tx is open. A system that does not do it changes nothing.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
}
