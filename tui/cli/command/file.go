package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"limpet/sync/text"
)

// Writable rejects a path that WriteAtomic must not replace: a directory, a device or a pipe, or one in a
// directory that does not exist. The hint is the command with another path.
func Writable(path, command string) error {
	info, err := os.Stat(path)
	dir, dirErr := os.Stat(filepath.Dir(path))
	switch {
	case err == nil && info.IsDir():
		return Usagef(command+" "+ShellWord(filepath.Join(path, "FILE")), "%s is a directory; it has to be a file", path)
	case err == nil && !info.Mode().IsRegular():
		return Usagef(command+" FILE", "%s is no regular file; a shell writes there with > from stdout", path)
	case dirErr != nil:
		return Usagef("mkdir -p "+ShellWord(filepath.Dir(path)), "no file can be made in %s: %w", filepath.Dir(path), Reason(dirErr))
	case !dir.IsDir():
		return Usagef(command+" FILE", "%s is no directory", filepath.Dir(path))
	}
	return nil
}

// Reason returns the cause of an error whose path was reported already.
func Reason(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// TargetError reports that a file named by the user cannot be written. It is no error of the state file,
// although a copy of that may be what is written.
type TargetError struct {
	path string
	err  error
}

func (e *TargetError) Error() string { return "write " + e.path + ": " + e.err.Error() }
func (e *TargetError) Unwrap() error { return e.err }

// hint returns the command that shows why.
func (e *TargetError) hint() string {
	dir := ShellWord(filepath.Dir(e.path))
	if errors.Is(e.err, syscall.ENOSPC) || errors.Is(e.err, syscall.EDQUOT) {
		return "df -h " + dir
	}
	return "ls -ld " + dir
}

// target writes to such a file.
type target struct {
	file *os.File
	path string
}

func (t target) Write(p []byte) (int, error) {
	n, err := t.file.Write(p)
	return n, t.failed(err)
}

func (t target) failed(err error) error {
	if err == nil {
		return nil
	}
	return &TargetError{t.path, Reason(err)}
}

// privateMode is the mode of a file made by os.CreateTemp.
const privateMode = 0o600

// WriteText writes a text with WriteAtomic, as a file of another mode.
func WriteText(path string, mode fs.FileMode, text string) error {
	_, err := writeAtomic(path, mode, func(w io.Writer) (int64, error) {
		n, err := io.WriteString(w, text)
		return int64(n), err
	})
	return err
}

// WriteAtomic writes a file for its owner alone that is either complete or absent, also after a power cut:
// temporary file, fsync, rename, fsync of the directory.
func WriteAtomic(path string, write func(io.Writer) (int64, error)) (n int64, err error) {
	return writeAtomic(path, privateMode, write)
}

func writeAtomic(path string, mode fs.FileMode, write func(io.Writer) (int64, error)) (n int64, err error) {
	parts := tempPrefix(path)
	removeLeftovers(parts)
	out := target{path: path}
	if out.file, err = os.CreateTemp(filepath.Dir(path), filepath.Base(parts)+"*"); err != nil {
		return 0, out.failed(err)
	}
	defer func() {
		if err != nil {
			out.file.Close()
			os.Remove(out.file.Name())
		}
	}()
	if n, err = write(out); err != nil {
		return n, err
	}
	if mode != privateMode { // FAT and network shares refuse chmod even to the present mode
		err = out.file.Chmod(mode)
	}
	for _, step := range []func() error{out.file.Sync, out.file.Close, func() error { return os.Rename(out.file.Name(), path) },
		func() error { return syncDir(filepath.Dir(path)) }} {
		if err == nil {
			err = step()
		}
	}
	return n, out.failed(err)
}

// syncDir makes the names in a directory durable, where its file system can do that: FUSE and SMB cannot.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// tempPrefix returns the prefix of the names of temporary files; a number follows it.
func tempPrefix(path string) string {
	name := filepath.Base(path)
	return filepath.Join(filepath.Dir(path), ".limpet-"+name[:min(len(name), 200)]+"-")
}

// leftoverAge is the age from which a temporary file is a leftover of a power cut. A live writer has given up on
// its daemon by then.
const leftoverAge = time.Hour

// removeLeftovers removes what power cuts have left of a file that is written again and again,
// as a backup is each night. That it cannot is no matter.
func removeLeftovers(parts string) {
	entries, err := os.ReadDir(filepath.Dir(parts))
	if err != nil {
		return
	}
	for _, e := range entries {
		number, part := strings.CutPrefix(e.Name(), filepath.Base(parts))
		if !part || number == "" || strings.Trim(number, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(filepath.Dir(parts), e.Name()))
		}
	}
}

// maxManifest bounds a file of objects; the API takes 3 MiB for one.
const maxManifest = 32 << 20

// ReadFile reads a file or, for "-", stdin, up to maxManifest.
func (e *Env) ReadFile(path string) ([]byte, error) {
	in := e.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("%s is larger than %s", path, text.Size(maxManifest))
	}
	return data, err
}
