package cli

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

// TestPathsThatAreNoFiles are refused before anything is read or written: above
// all a device, whose place the finished file would take.
func TestPathsThatAreNoFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "there")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	device, err := os.Stat(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{
		dir:                            "is a directory",
		os.DevNull:                     "is no regular file",
		filepath.Join(dir, "no", "x"):  "no file can be made in",
		filepath.Join(file, "x.jsonl"): "is no directory",
	} {
		for _, command := range [][]string{{"history", "export", "--file", path}, {"store", "backup", path}} {
			out, errText := s.must(t, ExitUsage, command...)
			if out != "" || !strings.Contains(errText, why) || !strings.Contains(errText, "try: ") {
				t.Errorf("%v: %q, %q", command, out, errText)
			}
		}
	}
	if now, err := os.Stat(os.DevNull); err != nil || now.Mode() != device.Mode() {
		t.Fatalf("%s: %v, %v", os.DevNull, now, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	s.must(t, 0, "history", "export", "--file", file)
	if data, err := os.ReadFile(file); err != nil || len(data) != 0 {
		t.Errorf("a file that is there is replaced: %q, %v", data, err)
	}
}

// TestPartsThatAreLeft: what power cuts have left of a file goes when that is written
// again; what another call writes at the moment stays, and so does what is not ours.
func TestPartsThatAreLeft(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x.bak", strings.Repeat("x", 255), "a*b?[c"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		var during []string
		part := func() (made string) {
			_, err := writeAtomic(path, func(io.Writer) (int64, error) {
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
		if slices.Contains(during, left) || !slices.Contains(during, left+"0") || !slices.Contains(during, left+"mine") || !slices.Contains(during, other) || len(during) != 4 {
			t.Errorf("%s: while it is written again there are %q", name, during)
		}
	}
}
