package command

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPartsThatAreLeft: what power cuts have left of a file goes when that is written
// again; what another call writes at the moment stays, and so does what is not ours.
func TestPartsThatAreLeft(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x.bak", strings.Repeat("x", 255), "a*b?[c"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		var during []string
		part := func() (made string) {
			_, err := WriteAtomic(path, func(io.Writer) (int64, error) {
				during, _ = filepath.Glob(filepath.Join(dir, ".limpet-*"))
				return 0, errors.New("enough")
			})
			if err == nil || len(during) == 0 {
				t.Fatalf("%s: %q %v", name, during, err)
			}
			return during[len(during)-1]
		}
		left := part()
		long := time.Now().Add(-2 * time.Hour)
		other := filepath.Join(dir, ".limpet-other-123")
		for file, at := range map[string]time.Time{left: long, left + "0": time.Now(), left + "mine": long, other: long} {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
		}
		part()
		if slices.Contains(during, left) || !slices.Contains(during, left+"0") || !slices.Contains(during, left+"mine") ||
			!slices.Contains(during, other) || len(during) != 4 {
			t.Errorf("%s: while it is written again there are %q", name, during)
		}
	}
}
