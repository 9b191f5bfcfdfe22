package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"limpet/state/frame"
	"limpet/state/repair"
)

// Open opens the state file of o, making, rebuilding, migrating or compacting it as needed; the
// report lists what was done. It waits for less than a second when another process holds the file,
// and takes longer than a few milliseconds only when the file has to be verified, rebuilt, migrated
// or compacted. Errors: *LockedError, *SchemaError, ErrReadOnly, ErrForeign, errors that are
// syscall.ENOSPC, and plain ones of the operating system. A damaged file is an error, ErrCorrupt,
// only with Options.ReadOnly.
func Open(ctx context.Context, o Options) (*Store, Report, error) {
	return openAs(ctx, o, current)
}

func openAs(ctx context.Context, o Options, f format) (*Store, Report, error) {
	if o.Path == "" {
		return nil, Report{}, errors.New("open state: no path")
	}
	// A probe process whose main did not call RunProbe gets here: without this it would start a child
	// of its own.
	repair.RunProbe()
	path, err := preparePath(o.Path, o.ReadOnly)
	if err != nil {
		return nil, Report{}, fmt.Errorf("open state: %w", err)
	}
	owner, err := takeOwner(path, o)
	if err != nil {
		return nil, Report{}, fmt.Errorf("open state: %w", err)
	}
	op := &opening{
		ctx: ctx, o: o, path: path, format: f, owner: owner,
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		maxSize: cmp.Or(max(o.MaxSize, 0), defaultMaxSize),
	}
	op.report.Unclean = owner.unclean
	file, err := op.open()
	if err != nil {
		return nil, op.report, errors.Join(fmt.Errorf("open state: %w", err), owner.release(!owner.unclean))
	}
	s := &Store{
		path: path, maxSize: op.maxSize, log: op.log, owner: owner, readOnly: o.ReadOnly, cur: file,
		seal: sealer{path: path}, reserve: newReserve(path),
		requests: make(chan *request), damagedC: make(chan struct{}),
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.files.Add(1)
	s.done.Go(s.runWriter)
	if op.unverified {
		s.done.Go(s.verifyLater)
	}
	return s, op.report, nil
}

// opening is the state of one Open.
type opening struct {
	ctx     context.Context // of the call
	o       Options
	path    string
	maxSize int64
	format  format
	owner   *ownerFile
	log     *slog.Logger
	report  Report

	unverified bool // the file was opened on the word of its seal
}

func (op *opening) open() (*file, error) {
	if op.o.ReadOnly {
		return op.openUnchanged()
	}
	if err := op.finishInterrupted(); err != nil {
		return nil, err
	}
	info, err := os.Stat(op.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() == 0:
		op.report.Created, err = true, nil
	case err != nil:
		return nil, frame.Classify(err)
	default:
		err = op.verify(info.Size())
	}
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return nil, err
	}
	note := ownerNote{PID: os.Getpid(), Version: op.o.Version, Since: time.Now(), Socket: op.o.Socket}
	if err := op.owner.write(note); err != nil {
		return nil, err
	}
	if err == nil {
		var f *file
		if f, err = op.openVerified(); !errors.Is(err, ErrCorrupt) {
			return f, err
		}
	}
	if err := op.rebuild(err); err != nil {
		return nil, err
	}
	return op.openVerified()
}

// openUnchanged opens a file that exists and is sound. Nothing is mended.
func (op *opening) openUnchanged() (*file, error) {
	info, err := os.Stat(op.path)
	if err == nil {
		err = op.verify(info.Size())
	}
	if err != nil {
		return nil, frame.Classify(err)
	}
	return op.openVerified()
}

// verify checks the file before bbolt opens it: whole and in a child process after an unclean stop,
// whole when it is small, and only its heads when the last owner sealed it.
func (op *opening) verify(size int64) error {
	if !op.owner.unclean && isSealed(op.path) {
		if size <= inlineCheck {
			return repair.Inspect(op.ctx, op.path, op.format.version)
		}
		op.unverified = true
		return nil
	}
	probe := op.o.probe
	if probe == nil {
		probe = func(ctx context.Context, path string) error { return repair.Check(ctx, path, op.format.version) }
	}
	err := probe(op.ctx, op.path)
	if errors.Is(err, repair.ErrNoChild) {
		op.log.Info("no child process for the verification, reading the state file here", "path", op.path, "err", err)
		err = repair.Inspect(op.ctx, op.path, op.format.version)
	}
	return err
}

// openVerified opens the file with bbolt, lays it out, migrates and compacts it. ErrCorrupt means
// that it has to be rebuilt.
func (op *opening) openVerified() (*file, error) {
	o := boltOptions(op.maxSize)
	if o.ReadOnly = op.o.ReadOnly; o.ReadOnly {
		o.PreLoadFreelist = true // Info counts it
	} else if op.o.Socket != "" {
		o.Timeout = commandWait // a command may look at the file
	}
	f, err := openBolt(op.path, o)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, &LockedError{Path: op.path}
	case err != nil:
		return nil, err
	}
	uncounted := false
	err = repair.Guard(func() (err error) {
		uncounted, err = op.format.apply(op, f)
		return err
	})
	if err != nil {
		f.broken = errors.As(err, new(*repair.FaultError))
		return nil, errors.Join(err, f.close())
	}
	size, free := f.size(), f.free()
	large := free > compactAbove && free*100 > size*compactShare
	if op.report.Created || op.o.ReadOnly || !large && !uncounted && !repair.Misplaced(f.handle) {
		return f, nil
	}
	small, err := compactInto(op.ctx, f, op.path, op.maxSize, false)
	switch {
	case errors.Is(err, ErrCorrupt), op.ctx.Err() != nil:
		return nil, errors.Join(err, f.close())
	case err != nil && repair.Misplaced(f.handle): // the next write would damage it
		return nil, errors.Join(fmt.Errorf("compact it, which a copy like this needs before it is written to: %w", err), f.close())
	case err != nil:
		// The file is as good as before, only larger.
		op.log.Warn("compact state file at start", "path", op.path, "err", err)
		if !uncounted {
			return f, nil
		}
		if err := f.countBytes(op.ctx); errors.Is(err, ErrCorrupt) {
			f.broken = errors.As(err, new(*repair.FaultError))
			return nil, errors.Join(err, f.close())
		} else if err != nil {
			op.log.Warn("count the bytes of the state file", "path", op.path, "err", err)
		}
		return f, nil
	}
	op.report.Compacted = true
	if err := f.close(); err != nil {
		return nil, errors.Join(err, small.close())
	}
	return small, nil
}

// countBytes recounts the records in place: a nearly full disk has no room for a compaction.
func (f *file) countBytes(ctx context.Context) error {
	return repair.Guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			t, err := beginTxn(tx, 0, now())
			if err != nil {
				return err
			}
			for _, b := range frame.DataBuckets {
				var met frame.Counter
				err := t.scanVerified(ctx, b, func(k []byte, r frame.Frame) error {
					met.AddFrame(k, r)
					return nil
				})
				if err != nil {
					return err
				}
				t.m.Counters[b] = met
			}
			return t.finish()
		})
	})
}

// preparePath follows links and, unless the file is only read, makes the directory and repairs
// permissions that are too wide.
func preparePath(path string, readOnly bool) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir := filepath.Dir(path)
	if !readOnly {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("make state directory: %w", frame.Classify(err))
		}
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", frame.Classify(err)
	case info.Mode().Perm()&0o022 != 0:
		return "", &SharedDirectoryError{Dir: dir, Mode: info.Mode()}
	}
	info, err = os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", frame.Classify(err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	if err := Foreign(path); err != nil || readOnly {
		return path, err
	}
	return path, restrictMode(path)
}

// restrictMode takes the rights of group and others from one of our files.
func restrictMode(name string) error {
	info, err := os.Stat(name)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(name, 0o600)
	}
	if err != nil {
		return fmt.Errorf("narrow permissions: %w", frame.Classify(err))
	}
	return nil
}

// RunProbe is called first in main. In a child process that Open has started to verify or salvage a
// damaged file it does that work and ends the process; in every other process it returns false at
// once.
func RunProbe() bool { return repair.RunProbe() }

// Foreign returns an ErrForeign for a file that is a person's text, and so no state file, however
// damaged: the first page of one has zeros in it. A file with the extension .db or an owner file is
// taken for a state file. It writes nothing.
func Foreign(path string) error {
	if filepath.Ext(path) == ".db" {
		return nil
	}
	if _, err := os.Lstat(path + ".owner"); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // the real open reports it
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 4<<10)
	n, err := io.ReadFull(f, head)
	if n == 0 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	if head = head[:n]; !isText(head) {
		return nil
	}
	return fmt.Errorf("%s is a text file: %w; it was not touched", path, ErrForeign)
}

// isText reports that the beginning of a file is text. Its end may cut a character.
func isText(head []byte) bool {
	for cut := range min(utf8.UTFMax, len(head)) {
		if utf8.Valid(head[:len(head)-cut]) {
			return bytes.IndexByte(head, 0) < 0
		}
	}
	return false
}
