package state

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTextIsNoStateFile: a person's text is refused as it is, with nothing beside it. What
// an owner has left its mark on was a state file, whatever is in it now.
func TestTextIsNoStateFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data   string
		name   string
		owned  bool
		refuse bool
	}{
		"a note":                  {"milk\nbread\n", "", false, true},
		"a byte":                  {"x", "", false, true},
		"a character at the edge": {strings.Repeat("x", 4<<10-1) + strings.Repeat("漢", 9), "", false, true},
		"a long one":              {strings.Repeat("線は切れる\n", 10_000), "", false, true},
		"text after zeros":        {"milk\x00bread\n", "", false, false},
		"no text":                 {strings.Repeat("\xff\xfe", 100), "", false, false},
		"text that was a state":   {"milk\nbread\n", "", true, false},
		"text named as a state":   {"milk\nbread\n", "limpet.db", false, false},
	} {
		path := filepath.Join(t.TempDir(), cmp.Or(c.name, "notes.txt"))
		if err := os.WriteFile(path, []byte(c.data), 0o644); err != nil {
			t.Fatal(err)
		}
		if c.owned {
			if err := os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, r, err := Open(t.Context(), Options{Path: path})
		if !c.refuse {
			if err != nil || r.Quarantined == "" || r.Damage == "" {
				t.Fatalf("%s: %v, %+v", name, err, r)
			}
			Closed(t, s)
			continue
		}
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		left, _ := os.ReadDir(filepath.Dir(path))
		if err != nil || string(data) != c.data || info.Mode().Perm() != 0o644 || len(left) != 1 {
			t.Errorf("%s: %v, mode %s, %v beside it", name, err, info.Mode(), left)
		}
	}
}
