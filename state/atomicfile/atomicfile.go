// Package atomicfile writes files that are whole or absent, after a power cut too.
package atomicfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// prefix begins the names of temporary files: a killed process leaves them behind.
const prefix = ".limpet-"

// IsTemporary reports whether a file has the name of a temporary one. No file that people name
// looks like that.
var IsTemporary = regexp.MustCompile(`^\.limpet-.+-[0-9]+\.tmp$`).MatchString

// tempMode is the mode of a file made by os.CreateTemp.
const tempMode = 0o600

// Write makes or replaces a file: write fills a temporary file in its directory, which is synced
// and renamed.
func Write(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return place(path, mode, write, os.Rename)
}

// Create makes a file like Write, unless there is one: then the error is fs.ErrExist, so
// that two processes that start together agree on one.
func Create(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return place(path, mode, write, os.Link)
}

// Data returns a function that writes data.
func Data(data []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(data); return err }
}

func place(path string, mode fs.FileMode, write func(io.Writer) error, publish func(from, to string) error) error {
	temp, err := Stage(path, mode, write)
	if err != nil {
		return err
	}
	defer os.Remove(temp) // after a rename it is gone
	if err := publish(temp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Stage fills and syncs a temporary file beside path, and returns its name: the caller renames or
// removes it. Of a Stage that fails nothing stays.
func Stage(path string, mode fs.FileMode, write func(io.Writer) error) (temp string, err error) {
	dir, name := filepath.Dir(path), filepath.Base(path)
	f, err := os.CreateTemp(dir, prefix+name[:min(len(name), 200)]+"-*.tmp")
	if err != nil {
		return "", err
	}
	err = write(f)
	if err == nil && mode != tempMode { // FAT and network shares refuse chmod even to the present mode
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// Adopt returns a temporary second name beside path of a synced file, as Stage does of a new one. Where
// the disk has no second names, it copies the file.
func Adopt(file, path string) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), prefix+filepath.Base(path)+"-*.tmp")
	if err != nil {
		return "", err
	}
	temp = f.Name()
	if err := errors.Join(f.Close(), os.Remove(temp)); err != nil {
		return "", err
	}
	from, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer from.Close()
	if os.Link(file, temp) != nil {
		return Stage(path, tempMode, func(w io.Writer) error { _, err := io.Copy(w, from); return err })
	}
	if err := from.Sync(); err != nil {
		return "", errors.Join(err, os.Remove(temp))
	}
	return temp, nil
}

// SyncDir makes the names in a directory durable, where its file system can do that: FUSE and SMB
// cannot.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// lockEvery is the retry interval for a lock of another process.
const lockEvery = 100 * time.Millisecond

// Lock takes the lock of a directory, which is held until f is closed.
func Lock(ctx context.Context, f *os.File) error {
	ticker := time.NewTicker(lockEvery)
	defer ticker.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("another process writes there: %w", context.Cause(ctx))
		}
	}
}
