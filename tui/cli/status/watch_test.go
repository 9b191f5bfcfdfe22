package status

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

// TestWatchOfTheStatus: a line for each change and none for what is the same, also when the daemon
// goes; Ctrl-C ends it then too.
func TestWatchOfTheStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		form string
		says []string // in each line
	}{
		{"table", []string{"Z ok", "Z ok, 1 working", "Z unreachable: "}},
		{"json", []string{`"repos":[]`, `"ok":true`, `"live":null,"store":null,"ok":false,"why":["`}},
	} {
		path := filepath.Join(t.TempDir(), "limpet.db")
		store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "other.db"), Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		show, leave := clitest.ServeSnapshots(t, path, store)
		out, errs := &clitest.Buffer{}, &clitest.Buffer{}
		e := &command.Env{Streams: command.Streams{Out: out, Err: errs, Lookup: func(string) (string, bool) { return "", false }},
			Flags: &command.Flags{State: path, Output: tt.form}}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- watchStatus(ctx, e) }()
		lines := func() int { return strings.Count(out.String(), "\n") }
		show(&snapshot.Snapshot{})
		until(t, "the first line", func() bool { return lines() == len(tt.says)-2 })
		show(&snapshot.Snapshot{})
		show(&snapshot.Snapshot{Jobs: []snapshot.Job{{Name: "a"}}})
		show(&snapshot.Snapshot{Counts: snapshot.Counts{Working: 1}})
		until(t, "the change", func() bool { return lines() == len(tt.says)-1 })
		leave()
		until(t, "the daemon is unreachable", func() bool { return lines() >= len(tt.says) })
		cancel(context.Canceled)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		for i, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
			if i >= len(tt.says) || !strings.Contains(line, tt.says[i]) {
				t.Errorf("-o %s: line %d: %s", tt.form, i, line)
			}
		}
	}
}

// until waits for what comes of other goroutines.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not %s", what)
		case <-tick.C:
		}
	}
}
