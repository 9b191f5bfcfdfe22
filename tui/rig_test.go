package tui

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/tui/screen"
	"limpet/tui/widget"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 11, 20, 14, 2, 37, 0, time.UTC)

// noSource has only a name.
type noSource struct{ screen.Source }

func (noSource) Name() string { return screen.Standalone }
func (noSource) Note() string { return "" }

func (noSource) Next(context.Context) (*snapshot.Snapshot, error) { return working(), nil }

func (noSource) Act(context.Context, screen.Action) error { return nil }

// working returns a snapshot of an agent that runs a job.
func working() *snapshot.Snapshot {
	return &snapshot.Snapshot{At: noon, API: snapshot.API{Up: true, Synced: true}, Agent: snapshot.Agent{Claims: 1, Busy: 1}}
}

func shown(snap *snapshot.Snapshot) screen.State {
	return screen.NewState("attached to daemon 4121", widget.Caps{}, noon).Show(snap)
}

func press(s screen.State, keys ...string) screen.State {
	for _, k := range keys {
		s, _ = s.Key(k, k)
	}
	return s
}

// strip removes escape sequences.
func strip(frame string) string {
	return regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(frame, "")
}

// check fails unless a frame has h lines of w cells.
func check(t *testing.T, frame string, w, h int, _ widget.Caps) {
	t.Helper()
	lines := strings.Split(strip(frame), "\n")
	if len(lines) != h {
		t.Errorf("%d lines of %d", len(lines), h)
	}
	for _, l := range lines {
		if got := displaywidth.String(l); got != w {
			t.Errorf("%d cells of %d in %q", got, w, l)
		}
	}
}

// golden compares a frame with the golden file of that name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("..", "testdata", "golden", "screen-"+name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got+"\n" != string(want) {
		t.Errorf("%s has changed; look at it and run with -update\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}
