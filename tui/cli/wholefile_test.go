package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
