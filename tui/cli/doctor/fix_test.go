package doctor

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/tui/cli/command"
)

// TestDoctorLeavesTheSocketOfWhoBegins: who holds the state file may be about to listen.
func TestDoctorLeavesTheSocketOfWhoBegins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	socket := agent.SocketPath(s.Env["LIMPET_STATE"])
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	s.Store(t, func(*state.Store) {
		if _, _, errs := s.Call("doctor", "--fix"); strings.Contains(errs, "fix: ") {
			t.Errorf("it has mended: %s", errs)
		}
	})
	if _, err := os.Lstat(socket); err != nil {
		t.Error(err)
	}
}

// TestDoctorLeavesWhatIsMeant: a socket with a listener, a directory that is everybody's
// on purpose, the group of a directory, and the copies that Kubernetes keeps below "..data" and
// shows by links.
func TestDoctorLeavesWhatIsMeant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared, group, socket := filepath.Join(dir, "tmp"), filepath.Join(dir, "group"), filepath.Join(dir, "s")
	fileOf(t, 0o644, dir, "default.boards", "..2026")
	ln, err := net.Listen("unix", socket)
	if err := errors.Join(err, os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777|os.ModeSticky), os.Mkdir(group, 0o700),
		os.Chmod(group, 0o775|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := fixer("CREDENTIALS_DIRECTORY", filepath.Join(dir, "default.boards"))
	p.fixSocket(socket)
	p.fixSocket(filepath.Join(dir, "default.boards", "..2026")) // no socket
	p.fixPermissions(place{shared, 0o022})
	if p.checkCredentials(t.Context()); p.fixes != nil {
		t.Errorf("%+v", p.fixes)
	}
	p.fixPermissions(place{group, 0o022})
	if info, err := os.Stat(group); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o755 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// fixer is an examination with --fix and the environment of pairs of names and values.
func fixer(env ...string) *examination {
	lookup := func(name string) (string, bool) {
		if i := slices.Index(env, name); i >= 0 {
			return env[i+1], true
		}
		return "", false
	}
	return &examination{fix: true, env: &command.Env{Flags: new(command.Flags), Streams: command.Streams{Err: io.Discard, Lookup: lookup}}}
}

// fileOf writes a file with a mode, and the directories above it.
func fileOf(t *testing.T, mode os.FileMode, elem ...string) (path string) {
	t.Helper()
	path = filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWritesAreBounded: in time, and by the caller.
func TestWritesAreBounded(t *testing.T) {
	t.Parallel()
	if took, err := timeWrites(t.Context(), t.TempDir(), 100, 1); err != nil || len(took) != 1 {
		t.Errorf("a nanosecond is enough for %d writes, %v", len(took), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if took, err := timeWrites(ended, t.TempDir(), 100, time.Minute); err != nil || len(took) != 0 {
		t.Errorf("%d writes after the end, %v", len(took), err)
	}
}
