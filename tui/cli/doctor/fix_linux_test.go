package doctor

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// TestDoctorTellsWhatItCannotMend: where nothing can be changed it says so, and is not
// called put right.
func TestDoctorTellsWhatItCannotMend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "f"), filepath.Join(dir, "s")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	p := fixer()
	calls := clitest.Trace(t, func() {
		p.fixPermissions(place{file, 0o077})
		p.fixSocket(path)
	}, func(string) syscall.Errno { return syscall.EROFS })
	done := p.fixes
	if len(done) != 2 || len(calls) < 2 || calls[0] != "chmod" || !slices.Contains(calls, "remove") {
		t.Fatalf("%q %+v", calls, done)
	}
	for i, before := range []string{"mode 0644", "the socket of a process that is gone"} {
		if done[i].Before != before || !strings.HasPrefix(done[i].After, "the same: ") ||
			!strings.HasSuffix(done[i].After, ": read-only file system") {
			t.Errorf("%+v", done[i])
		}
	}
}

// TestDoctorTimesSafeWrites: a write is over when it is safe, so each is synced.
func TestDoctorTimesSafeWrites(t *testing.T) {
	t.Parallel()
	var took []time.Duration
	var err error
	calls := clitest.Trace(t, func() { took, err = timeWrites(t.Context(), t.TempDir(), 5, time.Minute) },
		func(string) syscall.Errno { return 0 })
	synced := 0
	for _, call := range calls {
		if strings.HasPrefix(call, "sync .limpet-doctor-") {
			synced++
		}
	}
	if err != nil || len(took) != 5 || synced != 5 || !slices.IsSorted(took) || calls[0] != "remove" {
		t.Errorf("%v %v: %q", took, err, calls)
	}
	s := newSite(t)
	p := &examination{Env: &command.Env{Flags: &command.Flags{}, World: s.world("", io.Discard, io.Discard)},
		path: filepath.Join(s.Dir, "limpet.db"), exists: true}
	for errno, want := range map[syscall.Errno]check{
		syscall.EIO: {"writes", checkFail, "input/output error", "df -h " + s.Dir},
		syscall.EROFS: {"writes", checkFail, s.Dir + " is on a file system that is read-only",
			"limpet --state FILE    # on a disk that can be written to"},
		syscall.EPERM: {"writes", checkSkipped, "this user may not write to " + s.Dir, ""},
	} {
		var got check
		clitest.Trace(t, func() { got = p.checkWrites(t.Context()) }, func(call string) syscall.Errno {
			if strings.HasPrefix(call, "sync") {
				return errno
			}
			return 0
		})
		if !strings.HasSuffix(got.Found, want.Found) || got.Result != want.Result || got.Next != want.Next {
			t.Errorf("%v: %+v", errno, got)
		}
	}
}
