package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"limpet/state/atomicfile"
	"limpet/sync/text"
)

// Writable rejects a path that WriteAtomic must not replace: a directory, a device or a pipe, or
// one in a directory that does not exist. The hint is the command with another path.
func Writable(path, command string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(path)
	parent, parentErr := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return Usagef(command+" "+text.ShellWord(filepath.Join(path, "FILE")), "%s is a directory; it has to be a file", path)
	case err == nil && !info.Mode().IsRegular():
		return Usagef(command+" FILE", "%s is no regular file; a shell writes there with > from stdout", path)
	case parentErr != nil:
		return Usagef("mkdir -p "+text.ShellWord(dir), "no file can be made in %s: %w", dir, Reason(parentErr))
	case !parent.IsDir():
		return Usagef(command+" FILE", "%s is no directory", dir)
	}
	return nil
}

// Reason returns the cause of an error whose path was reported already.
func Reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}

// target writes to a file that the user has named. Its errors are none of the state file, although
// a copy of that may be what is written.
type target struct {
	io.Writer
	path string
}

func (t target) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	return n, Unwritten(t.path, err)
}

// Unwritten is the error of a command that could not write a file; nil for nil.
func Unwritten(path string, err error) error {
	if err == nil {
		return nil
	}
	next := "ls -ld "
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		next = "df -h "
	}
	return Errorf(ExitError, next+text.ShellWord(filepath.Dir(path)), "write %s: %w", path, Reason(err))
}

// WriteText writes a text with WriteAtomic, as a file of another mode.
func WriteText(path string, mode fs.FileMode, text string) error {
	return Unwritten(path, atomicfile.Write(path, mode, atomicfile.Data([]byte(text))))
}

// WriteAtomic writes a file for its owner alone that is either complete or absent, also after a
// power cut.
func WriteAtomic(path string, write func(io.Writer) (int64, error)) (n int64, err error) {
	var failed error
	err = atomicfile.Write(path, 0o600, func(w io.Writer) error {
		n, failed = write(target{w, path})
		return failed
	})
	return n, cmp.Or(failed, Unwritten(path, err))
}

// maxManifest bounds a file of objects; the API takes 3 MiB for one.
const maxManifest = 32 << 20

// ReadFile reads a file or, for "-", stdin, up to maxManifest.
func (e *Env) ReadFile(path string) ([]byte, error) {
	in := e.In
	if path == "-" && e.Getenv(InDashboard) != "" {
		return nil, Usagef("", "- is stdin, which no command has in the dashboard: name a file")
	}
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
