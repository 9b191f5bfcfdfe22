package tui

import (
	"context"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/screen"
	"limpet/tui/widget"
)

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
