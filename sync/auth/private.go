package auth

import (
	"fmt"
	"io"
	"os"
)

// ReadPrivate reads a regular file of at most 1 MiB that holds a secret. It
// refuses one that others than its owner may read; a group may read it when
// root owns it, which is how systemd and Kubernetes hand over secrets. Errors
// name the file and never hold its content.
func ReadPrivate(path string) ([]byte, error) { return readPrivate(os.Open, path) }

// ReadPrivateIn is ReadPrivate of what is in a directory; a link does not lead out of it.
func ReadPrivateIn(root *os.Root, name string) ([]byte, error) { return readPrivate(root.Open, name) }

// readPrivate is ReadPrivate of what open opens.
func readPrivate(open func(string) (*os.File, error), name string) ([]byte, error) {
	return readChecked(open, name, checkPrivate)
}

// readChecked reads a regular file of at most 1 MiB that passes a check of its
// owner and mode.
func readChecked(open func(string) (*os.File, error), name string, check func(string, os.FileInfo) error) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if err := check(name, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxValue:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxValue)
	}
	return data, nil
}
