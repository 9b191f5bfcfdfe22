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
