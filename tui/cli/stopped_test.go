package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"limpet/tui/cli/command"
)

// TestDaemonIsToldToEndBeforeItBegins: SIGTERM is no failure, however early it
// comes; --timeout is one.
func TestDaemonIsToldToEndBeforeItBegins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		cause error
		code  int
	}{
		{"SIGTERM", context.Canceled, command.ExitOK},
		{"timeout", command.TimeoutError{After: time.Second}, command.ExitTimeout},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(c.cause)
		var out, errs bytes.Buffer
		s := newSite(t)
		s.Must(t, 0, "repo", "create", "boards", "--url", "https://git.example.com/boards.git")
		// The file was left by a process that had no time to close it, so that it
		// is looked through first.
		if err := os.WriteFile(s.Env["LIMPET_STATE"]+".owner", []byte(`{"pid":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if code := command.RunContext(ctx, []string{"--daemon"}, s.world("", &out, &errs), s.newTree); code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s", c.name, code, c.code, errs.String())
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
			if code := Main([]string{"store", "info"}, command.World{In: &bytes.Buffer{}, Out: io.Discard, Err: io.Discard,
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
				world := command.World{In: &bytes.Buffer{}, Out: said, Err: said, Lookup: lookup}
				if code := command.RunContext(f, tt.args, world, func() command.Tree { return new(cli) }); code != command.ExitOK {
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
