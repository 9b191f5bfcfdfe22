package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The beginnings of the names of files that are being made: a process that was killed leaves them behind.
const (
	TempPrefix = "tmp_limpet_"
	packPrefix = "tmp_pack_"
)

// ReplaceFile writes a file that is whole, old or new, after a power loss. The
// caller syncs the directory when it matters which.
func ReplaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), TempPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone when all went well
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

const (
	refsFile   = "packed-refs"
	refsHeader = "# pack-refs with: peeled fully-peeled sorted \n"
)

// ReadRefs reads packed-refs: full name -> object.
func ReadRefs(dir string) (map[string]ID, error) {
	data, err := os.ReadFile(filepath.Join(dir, refsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]ID{}, nil
	}
	if err != nil {
		return nil, err
	}
	refs := make(map[string]ID)
	for line := range bytes.Lines(data) {
		if line[0] == '#' || line[0] == '^' {
			continue
		}
		hex, name, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		id, valid := ParseID(hex)
		if !ok || !valid || name == "" {
			return nil, fmt.Errorf("%w: malformed line in %s", ErrDamaged, refsFile)
		}
		refs[name] = id
	}
	return refs, nil
}

func WriteRefs(dir string, refs map[string]ID) error {
	out := []byte(refsHeader)
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		out = fmt.Appendf(out, "%s %s\n", refs[name], name)
	}
	return ReplaceFile(filepath.Join(dir, refsFile), out)
}
