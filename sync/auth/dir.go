package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// readDir reads the keys of one object in the credentials directory: <base>/<key>, else <base>_<key>; nil when there are none,
// also where there is no directory. Links are followed inside the directory only.
func readDir(dir, base string, s selection) (keys map[string][]byte, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open credentials directory: %w", err)
	}
	defer root.Close()
	defer func() {
		if err != nil {
			err = fmt.Errorf("credentials directory %s: %w", dir, err)
		}
	}()
	paths := map[string]string{}
	for _, dir := range []string{".", base} {
		names, err := list(root, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			key, flat := strings.CutPrefix(name, base+"_")
			switch {
			case dir == base && s.files(name):
				paths[name] = base + "/" + name
			case dir == "." && flat && s.files(key):
				paths[key] = name
			}
		}
	}
	var at place
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		v, err := readFile(root.Open, paths[key], s.check.of(key))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			at.set(key, v)
		}
	}
	return at.keys, nil
}

// list returns the names in a directory, none when there is no such directory.
func list(root *os.Root, dir string) ([]string, error) {
	f, err := root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// plainName keeps names that come from the API from being paths.
func plainName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\\\x00")
}

// ReadPrivate reads a regular file of at most 1 MiB that holds a secret. It refuses one that others than its owner may
// read; a group may read it when root owns it, which is how systemd and Kubernetes hand over secrets. Errors name the
// file and never hold its content.
func ReadPrivate(path string) ([]byte, error) { return readFile(os.Open, path, checkPrivate) }

// ReadPrivateIn is ReadPrivate of a file in a directory; a link does not lead out of it.
func ReadPrivateIn(root *os.Root, name string) ([]byte, error) {
	return readFile(root.Open, name, checkPrivate)
}

// ReadPublicIn reads a file of public keys in a directory: one of at most 1 MiB that only its owner may write to. A
// link does not lead out of the directory. Errors name the file.
func ReadPublicIn(root *os.Root, name string) ([]byte, error) {
	return readFile(root.Open, name, checkOwned)
}

// fileCheck checks owner and mode of a file.
type fileCheck func(name string, info fs.FileInfo) error

// IsPublic reports whether others may read the file of a key: CA certificates and host keys are public.
func IsPublic(key string) bool { return key == keyCA || key == keyCAOld || key == keyKnownHosts }

// of returns the check of the file of a key.
func (c fileCheck) of(key string) fileCheck {
	if IsPublic(key) {
		return checkOwned
	}
	return c
}

// readFile reads a regular file of at most 1 MiB that passes a check of its owner and mode.
func readFile(open func(string) (*os.File, error), name string, check fileCheck) ([]byte, error) {
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

// checkPrivate allows what only the owner may read, and group-readable files
// of root: systemd's credentials and Kubernetes' mounts with fsGroup are so.
func checkPrivate(name string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	rootOwned := false
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		rootOwned = st.Uid == 0
	}
	if mode&0o007 == 0 && (mode&0o070 == 0 || rootOwned && mode&0o070 == 0o040) {
		return nil
	}
	return fmt.Errorf("%s has mode %04o and may be read by others; run: chmod 600 on it", name, mode)
}

// checkOwned refuses what others than the owner may write to.
func checkOwned(name string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %04o and may be written to by others; run: chmod go-w on it", name, mode)
	}
	return nil
}
