package fileid

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"limpet/sync/text"
)

// MaxSettings bounds a file of settings, certificates or keys.
const MaxSettings = 4 << 20

// OpenFile opens a file of the host, or of a directory.
type OpenFile = func(name string, flag int, mode fs.FileMode) (*os.File, error)

// Read reads a configured file of at most max bytes. It reads regular files alone: a pipe
// waits for its writer, a device may never end.
func Read(path string, max int64) ([]byte, error) {
	return ReadChecked(os.OpenFile, path, max, nil)
}

// Open opens a configured file for reading. It opens regular files alone.
func Open(open OpenFile, name string) (*os.File, fs.FileInfo, error) {
	f, err := open(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ReadChecked is Read of a file that passes a check of its name and mode, if there is one.
func ReadChecked(open OpenFile, name string, max int64, check func(string, fs.FileInfo) error) ([]byte, error) {
	f, info, err := Open(open, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if check != nil {
		if err := check(name, info); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(data)) > max {
		return nil, fmt.Errorf("%s is larger than %s", name, text.Size(max))
	}
	return data, err
}
