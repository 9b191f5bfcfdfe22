package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"limpet/state"
	"limpet/tui/cli/command"
)

func TestLockedByACommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Store(t, func(*state.Store) {
		_, errs := s.Must(t, command.ExitStore, "repo", "list")
		if !strings.Contains(errs, "wait until process") {
			t.Errorf("a holder without a socket cannot be asked: %s", errs)
		}
	})
}

func TestBackup(t *testing.T) {
	t.Parallel()
	s := seeded(t)
	file := filepath.Join(s.Dir, "copy")
	for range 2 { // the second replaces the first
		s.Must(t, 0, "store", "backup", file)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, errs := s.Must(t, command.ExitUsage, "store", "backup", filepath.Join(s.Dir, "no", "such", "place")); !strings.Contains(errs,
		"no such file or directory") {
		t.Errorf("%s", errs)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, ".limpet-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if out, _ := s.Must(t, 0, "--state", file, "history", "list", "-o", "name"); out != "u1\nu2\n" {
		t.Errorf("the copy: %s", out)
	}
}

// TestLooksAtBackups: a backup, whatever its transaction is, is looked at without a change to any file, and an agent
// starts on it.
func TestLooksAtBackups(t *testing.T) {
	t.Parallel()
	s := seeded(t)
	s.Must(t, 0, "repo", "create", "quay", "--url", "https://git.invalid/boards.git")
	for i := range 2 {
		s.Must(t, 0, "repo", "set", "quay", "--title", fmt.Sprint("title ", i))
		dir := t.TempDir()
		file := filepath.Join(dir, "copy.db")
		s.Must(t, 0, "store", "backup", file)
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for _, look := range []string{"status", "repo list", "store info", "store check", "get repositories", "doctor"} {
				code, out, errs := s.Call(append([]string{"--read-only", "--state", file}, strings.Fields(look)...)...)
				if code != 0 && look != "doctor" && look != "status" { // these may report that no agent runs
					t.Errorf("%s: exit %d: %s%s", look, code, out, errs)
				}
			}
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, before) {
			t.Errorf("copy %d: its bytes changed: %v", i, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("copy %d: left behind: %v, %v", i, left, err)
		}
		s.Must(t, command.ExitStore, "--read-only", "--state", filepath.Join(dir, "none.db"), "repo", "list")
		restored := newSite(t)
		restored.Env = map[string]string{"HOME": dir, "LIMPET_STATE": file, "LIMPET_TELEMETRY_LISTEN": ""}
		for range 2 {
			t.Run("agent", func(t *testing.T) {
				restored.Daemon(t, nil)
				if out, _ := restored.Must(t, 0, "repo", "list", "-o", "name"); !strings.Contains(out, "quay") {
					t.Errorf("copy %d: %s", i, out)
				}
			})
		}
		if damaged, err := filepath.Glob(file + ".corrupt-*"); err != nil || len(damaged) > 0 {
			t.Errorf("copy %d: set aside: %v %v", i, damaged, err)
		}
	}
}

// fuse is a context that a signal ends when it has been looked at so many times.
type fuse struct {
	context.Context
	end context.CancelCauseFunc

	mu   sync.Mutex // guards left
	left int
}

func (f *fuse) Done() <-chan struct{} { f.look(); return f.Context.Done() }
func (f *fuse) Err() error            { f.look(); return f.Context.Err() }
func (f *fuse) Value(key any) any     { f.look(); return f.Context.Value(key) }

func (f *fuse) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left == 0 {
		f.end(context.Canceled)
	}
}

// TestSignalWhileItStarts: what runs until it is told to end has done what it was
// told when the signal comes while it starts, at whichever look at its context.
func TestSignalWhileItStarts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args    []string
		started string // what it says when it runs
	}{
		{[]string{"--daemon"}, "agent started"},
		{[]string{"api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0"}, "API on"},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			env := map[string]string{"LIMPET_STATE": filepath.Join(dir, "limpet.db"), "HOME": dir}
			lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
			if code := Main([]string{"store", "info"}, command.Streams{In: &bytes.Buffer{}, Out: io.Discard, Err: io.Discard,
				Lookup: lookup}); code != command.ExitOK {
				t.Fatalf("exit code %d", code)
			}
			started := false
			for look := 1; !started; look++ {
				// After a kill the start takes its longest way.
				if err := os.WriteFile(env["LIMPET_STATE"]+".owner", []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancelCause(t.Context())
				f := &fuse{Context: ctx, end: end, left: look}
				said := &alarm{text: tt.started, ring: func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					started = f.left > 0
					f.end(context.Canceled)
				}}
				streams := command.Streams{In: &bytes.Buffer{}, Out: said, Err: said, Lookup: lookup}
				if code := command.RunContext(f, tt.args, streams, func() command.Tree { return new(cli) }); code != command.ExitOK {
					t.Errorf("a signal at look %d: exit code %d\n%s", look, code, said.all.String())
				}
			}
		})
	}
}

// alarm calls ring when a text is written to it.
type alarm struct {
	text string
	ring func()

	mu  sync.Mutex // guards all
	all bytes.Buffer
}

func (a *alarm) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes.Contains(p, []byte(a.text)) {
		a.ring()
	}
	return a.all.Write(p)
}
