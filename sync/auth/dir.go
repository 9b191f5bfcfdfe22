package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// DirSource reads files of a credentials directory: <namespace>.<name>/<key>,
// with the name of the Repository or else of its Connection and the keys of
// keyNames or of a provider. The flat form <namespace>.<name>_<key> is read too: systemd lays out
// a LoadCredential directory that way.
//
// Files that others may read are refused, see [ReadPrivate]. Links are followed
// inside the directory only.
func DirSource(dir string) Source {
	return SourceFunc(func(_ context.Context, l Lookup) (*Credentials, error) {
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("open credentials directory: %w", err)
		}
		defer root.Close()
		for _, name := range []string{l.Repository, l.Connection} {
			if !plainName(l.Namespace) || !plainName(name) {
				continue
			}
			base := l.Namespace + "." + name
			keys, err := readKeys(root, base, usedKeys)
			if err != nil {
				return nil, fmt.Errorf("credentials directory %s: %w", dir, err)
			}
			if len(keys) > 0 {
				c, err := credentials(keys, l, "directory "+dir+" for "+base)
				return trusted(false, c, err)
			}
		}
		return nil, nil
	})
}

// readKeys reads the files of one object, in both forms.
func readKeys(root *os.Root, base string, names []string) (map[string][]byte, error) {
	below, err := listed(root, base)
	if err != nil {
		return nil, err
	}
	keys := make(map[string][]byte)
	for _, k := range names {
		files := []string{base + "/" + k, base + "_" + k}
		if below != nil && !below[k] {
			files = files[1:]
		}
		for _, file := range files {
			v, err := readPrivate(root.Open, file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			keys[k] = v
			break
		}
	}
	return keys, nil
}

// listed are the names in a directory: most of the keys that there could be are
// not, and to look for each of them costs more. Nil when the directory may be
// passed and not read, empty when there is none.
func listed(root *os.Root, dir string) (map[string]bool, error) {
	found := map[string]bool{}
	f, err := root.Open(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		found[name] = true
	}
	return found, err
}

// plainName keeps names that come from the API from being paths.
func plainName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\\\x00")
}

// Value reads one file of a credentials directory, of the names that DirSource
// knows, and nil when there is none. Line ends at its end are left out.
func Value(dir, namespace, name, key string) ([]byte, error) {
	if !plainName(namespace) || !plainName(name) {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open credentials directory: %w", err)
	}
	defer root.Close()
	keys, err := readKeys(root, namespace+"."+name, []string{key})
	if err != nil {
		return nil, fmt.Errorf("credentials directory %s: %w", dir, err)
	}
	return bytes.TrimRight(keys[key], "\r\n"), nil
}
