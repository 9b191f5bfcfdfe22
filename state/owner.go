package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"limpet/state/atomicfile"
	"limpet/state/frame"
)

// The owner file, `<path>.owner`, has two uses: it names the holder to a process that finds the
// state locked, and it marks an unclean stop. It is locked from Open to Close and holds text from
// before the first write until a clean Close removes it. A process that gets the lock and finds
// text in it follows an owner that did not close.
//
// Holding this lock, and not only bbolt's, keeps a second process away while the file is set aside,
// rebuilt or replaced.

type ownerNote struct {
	PID     int       `json:"pid"`
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since"`
	Socket  string    `json:"socket,omitempty"`
}

type ownerFile struct {
	f       *os.File
	unclean bool // the one before did not close
}

// lockPoll is how often a held lock is tried again within lockWait.
const lockPoll = 20 * time.Millisecond

// takeOwner locks the owner file of the state at path. It returns a *LockedError after lockWait,
// for an agent whose file another agent does not hold after commandWait. Of a file that is only
// read it takes no lock: that of bbolt holds.
func takeOwner(path string, o Options) (*ownerFile, error) {
	name := path + ".owner"
	if o.ReadOnly {
		if holder, err := HeldBy(path); err != nil || holder != nil {
			return nil, cmp.Or[error](err, holder)
		}
		info, err := os.Lstat(name)
		return &ownerFile{unclean: err == nil && info.Size() > 0}, nil
	}
	began := time.Now()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, frame.Classify(fmt.Errorf("open owner file: %w", err))
		}
		held, err := tryLock(f, syscall.LOCK_EX)
		if held && sameFile(f, name) {
			var note []byte
			if note, err = io.ReadAll(io.LimitReader(f, 1)); err == nil {
				return &ownerFile{f: f, unclean: len(note) > 0}, nil
			}
		}
		locked := lockedBy(path, f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("lock owner file: %w", err)
		}
		wait := lockWait
		if o.Socket != "" && locked.Socket == "" {
			wait = commandWait
		}
		if time.Since(began) > wait {
			return nil, locked
		}
		<-tick.C
	}
}

// HeldBy returns the process that has the state file at path open, nil when none has. It does not
// wait and changes nothing; the answer may be outdated when it returns.
func HeldBy(path string) (*LockedError, error) {
	f, err := os.OpenFile(path+".owner", os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, frame.Classify(fmt.Errorf("open owner file: %w", err))
	}
	defer func() { _ = f.Close() }()
	free, err := tryLock(f, syscall.LOCK_SH)
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock owner file: %w", err)
	case free:
		return nil, nil
	}
	return lockedBy(path, f), nil
}

// sameFile reports whether name still leads to the open file: the owner before may have removed it.
func sameFile(f *os.File, name string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(name)
	return err == nil && os.SameFile(have, there)
}

// lockedBy reads the owner's note.
func lockedBy(path string, f *os.File) *LockedError {
	e := &LockedError{Path: path}
	var note ownerNote
	if err := json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&note); err == nil {
		e.PID = note.PID
		e.Version = note.Version
		e.Since = note.Since
		e.Socket = note.Socket
	}
	return e
}

// write makes the note durable. The file is never empty on the way, so that a power cut here does
// not hide the unclean stop before.
func (o *ownerFile) write(n ownerNote) error {
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode owner note: %w", err)
	}
	text = append(text, '\n')
	if _, err = o.f.WriteAt(text, 0); err == nil {
		err = o.f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = o.f.Sync()
	}
	if err != nil {
		return frame.Classify(fmt.Errorf("write owner file: %w", err))
	}
	return atomicfile.SyncDir(filepath.Dir(o.f.Name()))
}

// release unlocks; clean also removes the file and with it the mark.
func (o *ownerFile) release(clean bool) (err error) {
	if o.f == nil {
		return nil
	}
	if clean {
		if err = os.Remove(o.f.Name()); err == nil {
			err = atomicfile.SyncDir(filepath.Dir(o.f.Name()))
		}
	}
	if err = errors.Join(err, o.f.Close()); err != nil {
		return frame.Classify(fmt.Errorf("release owner file: %w", err))
	}
	return nil
}

// tryLock takes a lock of an open file, shared or exclusive, and reports whether it got it.
func tryLock(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
