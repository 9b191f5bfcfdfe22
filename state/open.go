package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// Open opens the state file of o, making, repairing, migrating or compacting it as needed; the report says what was
// done. It blocks for at most a second when another process holds the file, and longer only when a file has to be
// verified, rebuilt or compacted. Errors: *LockedError, *SchemaError, ErrReadOnly, ErrForeign, errors that are
// syscall.ENOSPC, and plain ones of the operating system. A damaged file is no error.
func Open(ctx context.Context, o Options) (*Store, Report, error) {
	return openAs(ctx, o, current)
}

func openAs(ctx context.Context, o Options, f format) (*Store, Report, error) {
	began := time.Now()
	if o.Path == "" {
		return nil, Report{}, errors.New("open state: no path")
	}
	path, err := preparePath(o.Path)
	if err != nil {
		return nil, Report{}, err
	}
	owner, err := takeOwner(path)
	if err != nil {
		return nil, Report{}, fmt.Errorf("open state %s: %w", path, err)
	}
	op := &opening{ctx: ctx, o: o, path: path, format: f, owner: owner, log: o.Logger}
	if op.log == nil {
		op.log = slog.New(slog.DiscardHandler)
	}
	op.maxSize = cmp.Or(max(o.MaxSize, 0), DefaultMaxSize)
	op.report.Unclean = owner.unclean
	db, err := op.open()
	if err != nil {
		_ = owner.release(!owner.unclean)
		return nil, op.report, err
	}
	s := &Store{
		path: path, maxSize: op.maxSize, log: op.log, format: f, owner: owner,
		requests: make(chan *request), cur: db, seal: sealer{path: path},
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.done.Add(1)
	go s.runWriter()
	op.report.Elapsed = time.Since(began)
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
}

func (op *opening) open() (*file, error) {
	_, err := os.Stat(op.path)
	op.report.Created = errors.Is(err, fs.ErrNotExist)
	if err := op.owner.write(ownerNote{PID: os.Getpid(), Version: op.o.Version, Since: time.Now(), Socket: op.o.Socket}); err != nil {
		return nil, err
	}
	db, err := openBolt(op.path, boltOptions(op.maxSize))
	if err != nil {
		return nil, err
	}
	err = guard(func() error {
		return db.db.Update(func(tx *bbolt.Tx) error {
			if tx.Bucket([]byte(metaBucket)) != nil {
				return nil
			}
			return layout(tx, newMeta(op.format.version, 0, now()), now())
		})
	})
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

// preparePath makes the directory, follows links and repairs permissions that are too wide.
func preparePath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("open state: %w", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", classify(fmt.Errorf("make state directory: %w", err))
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", classify(fmt.Errorf("open state: %w", err))
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("open state: %s is not a regular file", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			return "", classify(fmt.Errorf("narrow permissions of state: %w", err))
		}
	}
	return path, nil
}

// RunProbe is called first in main. In a probe child it checks the file, answers its parent and exits; otherwise it
// returns false at once.
func RunProbe() bool { return false }
