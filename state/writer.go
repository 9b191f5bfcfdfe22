package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"limpet/state/frame"
	"limpet/state/repair"
)

// The writer is one goroutine. It takes the first waiting request, adds all others that wait,
// applies them in one transaction and answers them after its fsync. A request alone is written at
// once; eight writers share one fsync.
//
// Those that a commit has answered are often back within the time of one, each with its next write:
// the writer waits that long for as many as the last commit had and left waiting. Otherwise two
// groups would take turns, and each write would wait for both.
//
// A request that gives an error before it has written anything does not disturb the group. When it
// had written, or the commit fails, the transaction is rolled back and the requests are tried one
// by one, so that on a full disk the deletes that would help are not refused because of the put
// beside them.

const (
	// maxGroup bounds a transaction: its requests wait for all of it.
	maxGroup = 256
	// A group waits for others for as long as the last commit took, at most maxLinger. A transaction
	// costs the processor as much as several writes in it, so after a quick commit, as in memory, a
	// group waits several times as long, up to shortLinger.
	maxLinger   = 20 * time.Millisecond
	shortLinger = 500 * time.Microsecond
)

// request is one write. Its apply may run more than once, each time on a fresh transaction.
type request struct {
	apply func(*txn) error
	alone func() error  // instead of apply: work that no write may disturb
	err   error         // valid after done
	done  chan struct{} // closed by the writer
}

// write hands apply to the writer and waits for the fsync. When ctx ends before the writer took the
// request, nothing is written; after that the true result is awaited, which takes one or two
// fsyncs.
func (s *Store) write(ctx context.Context, apply func(*txn) error) error {
	return s.submit(ctx, &request{apply: apply, done: make(chan struct{})})
}

func (s *Store) submit(ctx context.Context, r *request) error {
	if s.readOnly && r.alone == nil {
		return ErrReadOnly
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The channel has no buffer: what the writer has received it also answers.
	select {
	case s.requests <- r:
		<-r.done
		return r.err
	case <-s.life.Done():
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runWriter serves requests until the store closes.
func (s *Store) runWriter() {
	crowd, took := 1, time.Duration(0)
	var waiting []*request
	for {
		group := s.gather(waiting, crowd, min(max(took, min(5*took, shortLinger)), maxLinger))
		if len(group) == 0 {
			return
		}
		crowd = len(group)
		began := time.Now()
		var last *request
		if n := len(group) - 1; group[n].alone != nil {
			last, group = group[n], group[:n]
		}
		if len(group) > 0 && !s.commit(group) {
			for _, r := range group {
				s.commit([]*request{r})
			}
		}
		if last != nil {
			last.finish(s.reportDamage(last.alone()))
		}
		took = time.Since(began)
		waiting = s.add(nil)
		crowd += len(waiting)
	}
}

// gather returns the next group: those that wait, and what comes until it has the size of the crowd
// or linger is over. It is empty when the store closes.
func (s *Store) gather(group []*request, crowd int, linger time.Duration) []*request {
	var over <-chan time.Time
	for len(group) == 0 || linger > 0 && len(group) < crowd && !full(group) {
		if len(group) > 0 && over == nil {
			over = time.After(linger)
		}
		select {
		case r := <-s.requests:
			group = s.add(append(group, r))
		case <-over:
			return group
		case <-s.life.Done():
			return group
		}
	}
	return group
}

// add adds to a group what waits now.
func (s *Store) add(group []*request) []*request {
	for !full(group) {
		select {
		case r := <-s.requests:
			group = append(group, r)
		default:
			return group
		}
	}
	return group
}

// full reports whether a group takes no more. A request that needs the file to itself ends it.
func full(group []*request) bool {
	return len(group) >= maxGroup || len(group) > 0 && group[len(group)-1].alone != nil
}

func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

// errAgain rolls a group back so that its requests are tried one by one.
var errAgain = errors.New("try one by one")

// commit applies a group in one transaction and answers its requests. It returns false, without any
// answer, when they should be tried one by one.
func (s *Store) commit(group []*request) bool {
	if s.cur.broken {
		for _, r := range group {
			r.finish(frame.Corrupt("it takes no more writes until it is rebuilt at the next start"))
		}
		return true
	}
	out := s.transact(group)
	if noSpace(out.err) && len(group) == 1 && out.grown <= 0 && s.reserve.release(now()) {
		out = s.transact(group)
	}
	switch {
	case errors.As(out.err, new(*repair.FaultError)):
		// bbolt may hold its own locks after a panic in a write transaction, so that the next one would
		// wait for ever.
		s.cur.broken = true
	case out.err != nil && len(group) > 1:
		return false
	}
	if publish := s.publish.Load(); publish != nil && out.err == nil && len(out.events) > 0 {
		(*publish)(out.events)
	}
	for i, r := range group {
		err := out.refused[i]
		if err == nil {
			err = out.err
		}
		r.finish(s.reportDamage(frame.Classify(err)))
	}
	s.refused.Store(noSpace(out.err) || errors.Is(frame.Classify(out.err), ErrReadOnly))
	if out.err == nil {
		s.reserve.restore(now())
	}
	return true
}

// outcome is what became of a transaction.
type outcome struct {
	err     error   // of the transaction
	refused []error // of each request
	events  []ObjectEvent
	grown   int64 // see txn
}

// transact applies a group in one transaction.
func (s *Store) transact(group []*request) outcome {
	out := outcome{refused: make([]error, len(group))}
	var written journal
	out.err = repair.Guard(func() error {
		return s.cur.db.Update(func(tx *bbolt.Tx) error {
			t, err := beginTxn(tx, s.maxSize, now())
			if err == nil {
				err = t.log.begin()
			}
			if err != nil {
				return err
			}
			for i, r := range group {
				before := t.puts
				out.refused[i] = r.apply(t)
				if out.refused[i] == nil || t.puts == before {
					continue
				}
				if len(group) > 1 {
					return errAgain
				}
				return out.refused[i]
			}
			if t.puts == 0 {
				return errNothing
			}
			out.events = t.events
			out.grown = t.grown
			written = t.log
			s.cur.touched.add(tx, t.puts*pageOfRecord)
			return t.finish()
		})
	})
	if errors.Is(out.err, errNothing) {
		out.err = nil
	} else if out.err == nil {
		out.err = written.commit(s.path)
	}
	return out
}

// errNothing ends a transaction in which nothing was written without an fsync.
var errNothing = errors.New("nothing to write")

// reportDamage remembers that damage was seen and returns err.
func (s *Store) reportDamage(err error) error {
	if err != nil && errors.Is(err, ErrCorrupt) && !s.damaged.Swap(true) {
		s.log.Error("state file is damaged; it is verified and rebuilt when it is opened again", "path", s.path, "err", err)
		close(s.damagedC)
	}
	return err
}

// mutateError carries the error or the panic of a caller's function from the writer's goroutine
// back to the caller's, so that neither looks like one of the store's own. It hides what it wraps.
type mutateError struct {
	err   error
	stack []byte // of the panic
}

func (e *mutateError) Error() string {
	if e.stack == nil {
		return e.err.Error()
	}
	return fmt.Sprintf("%v\n\n%s", e.err, e.stack)
}

// recovered calls fn, which a caller supplied. Its error is a *callerError.
func recovered[T any](fn func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &mutateError{fmt.Errorf("panic: %v", r), debug.Stack()}
		} else if err != nil {
			err = &mutateError{err: err}
		}
	}()
	return fn()
}

// flagReadOnly is ST_RDONLY of Linux and MNT_RDONLY of macOS.
const flagReadOnly = 1

// DiskError returns why the disk of the state file takes no writes now, nil when it does:
// ErrReadOnly or syscall.ENOSPC in an error that names the file. After a write that the disk
// refused, each call tries one.
func (s *Store) DiskError(ctx context.Context) (err error) {
	var disk unix.Statfs_t
	_ = unix.Statfs(filepath.Dir(s.path), &disk) // else, as on some file systems, no blocks: unknown
	free := disk.Bavail
	if os.Geteuid() == 0 { // who may use what is kept for root
		free = disk.Bfree
	}
	switch {
	case disk.Flags&flagReadOnly != 0:
		err = ErrReadOnly
	case disk.Blocks > 0 && free*uint64(disk.Bsize) < reserveSize:
		err = syscall.ENOSPC
	case s.refused.Load():
		err = s.PutFact(ctx, "disk", nil)
	}
	if err != nil {
		err = fmt.Errorf("disk of state file %s: %w", s.path, err)
	}
	return err
}

// noSpace reports whether an error is want of space, which classify has named so, or the file
// system itself.
func noSpace(err error) bool { return errors.Is(frame.Classify(err), syscall.ENOSPC) }
