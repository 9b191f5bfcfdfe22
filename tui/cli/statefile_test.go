package cli

import (
	"bytes"
	"context"
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

// TestSignalWhileItStarts: a command that runs until a signal ends well when the signal
// comes while it starts, at whichever look at its context.
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
