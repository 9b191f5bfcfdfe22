package command

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/tui/cli/clitest"
)

// TestWholeFileOutlivesAPowerCut: what is in it is safe before it has its name, and the
// name is before anybody is told. Where one of these does not succeed nothing is left, and
// the file before stays; a disk that does not know the last one is none the worse.
func TestWholeFileOutlivesAPowerCut(t *testing.T) {
	t.Parallel()
	inOrder := []string{"sync tmp", "rename", "sync dir"}
	givenUp := func(n int) []string { return append(inOrder[:n:n], "remove") }
	for _, tt := range []struct {
		refused string
		errno   syscall.Errno
		calls   []string
		holds   string
		err     bool
	}{
		{"", 0, inOrder, "new", false},
		{"sync tmp", syscall.EIO, givenUp(1), "old", true},
		{"sync tmp", syscall.EINVAL, givenUp(1), "old", true},
		{"sync tmp", syscall.ENOSPC, givenUp(1), "old", true},
		{"rename", syscall.EACCES, givenUp(2), "old", true},
		{"sync dir", syscall.EIO, givenUp(3), "new", true},
		{"sync dir", syscall.EINVAL, inOrder, "new", false},
		{"sync dir", syscall.EOPNOTSUPP, inOrder, "new", false},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		path := filepath.Join(dir, "file")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		named := func(call string) string {
			if strings.HasPrefix(call, "sync .limpet-") {
				return "sync tmp"
			}
			return call
		}
		var err error
		calls := clitest.Trace(t, func() {
			_, err = WriteAtomic(path, func(w io.Writer) (int64, error) { _, err := io.WriteString(w, "new"); return 0, err })
		}, func(call string) syscall.Errno {
			if named(call) == tt.refused {
				return tt.errno
			}
			return 0
		})
		for i := range calls {
			calls[i] = named(calls[i])
		}
		if !slices.Equal(slices.Compact(calls), tt.calls) || (err != nil) != tt.err || tt.err && !errors.Is(err, tt.errno) {
			t.Errorf("%q refused with %v: %q, %v", tt.refused, tt.errno, calls, err)
		}
		next := map[syscall.Errno]string{syscall.ENOSPC: "df -h "}[tt.errno]
		if code, hint := Classify(err); err != nil && (code != ExitError || hint != cmp.Or(next, "ls -ld ")+dir ||
			err.Error() != "write "+path+": "+tt.errno.Error()) {
			t.Errorf("%v: exit %d, try: %s", err, code, hint)
		}
		data, _ := os.ReadFile(path)
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || string(data) != tt.holds {
			t.Errorf("%q refused with %v: %q holds %q, %v", tt.refused, tt.errno, left, data, err)
		}
	}
}
