package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// kept is how the house of the picture is kept.
func kept() snapshot.Care {
	return snapshot.Care{At: noon.Add(-2 * time.Second),
		Store:   snapshot.Store{Path: "/var/lib/limpet/limpet.db", Bytes: 61 << 20, FreeBytes: 4 << 20, History: 41288, HistoryBytes: 40 << 20, Oldest: noon.Add(-167 * time.Hour), Claims: 3, Resting: 1, Objects: 0, Secrets: 2, DiskFree: 41 << 30, DiskSize: 58 << 30},
		Mirrors: snapshot.Mirrors{Count: 4, Bytes: 212 << 20},
		Watches: []snapshot.Watch{{Kind: "jobs", Synced: true, Objects: 7}, {Kind: "repositories", Synced: true, Objects: 4}, {Kind: "connections", Error: "403 Forbidden: connections is forbidden"}},
		Tokens:  []snapshot.Tokens{{Provider: "github", Held: 2, Oldest: 31 * time.Minute, Hits: 1204, Minted: 9}, {Provider: "gcp", Held: 1, Oldest: time.Minute, Hits: 3, Minted: 1, Failed: 2}}}
}

func TestAgentScreen(t *testing.T) {
	t.Parallel()
	src := &archive{care: kept()}
	s := press(shown(picture(), Caps{Mono: true, ASCII: true}), "5")
	frame := func(s State) string { return Render(s, 140, 60, s.Caps) }
	if f := frame(s); !strings.Contains(f, "is looked up") || !strings.Contains(f, "pid          4121") {
		t.Errorf("before the answer:\n%s", f)
	}
	s = settle(t, s, src)
	for _, want := range []string{"41 GiB free of 58 GiB", "4 mirrors, 212 MiB", "403 Forbidden", "github       2 held, the oldest is 31m old; made 9 times", "2 could not be made", "41,288 jobs that have ended, the oldest of 6d ago", "team-dash-sync, lease 18s"} {
		if !strings.Contains(frame(s), want) {
			t.Errorf("no word of %q in\n%s", want, frame(s))
		}
	}
	t.Run("it scrolls no further than its end", func(t *testing.T) {
		end := press(s, "end")
		if f := Render(end, 80, 24, s.Caps); !strings.Contains(f, "as of 2s ago") {
			t.Errorf("the end is not shown:\n%s", f)
		}
		if up := press(end, "up"); up.diagnostics.scroll != end.diagnostics.scroll-1 {
			t.Errorf("one up from %d leads to %d", end.diagnostics.scroll, up.diagnostics.scroll)
		}
		large := s
		large.W, large.H = 200, 60
		if large = press(large, "end"); large.diagnostics.scroll != 0 {
			t.Errorf("all is shown, and it scrolls to %d", large.diagnostics.scroll)
		}
	})
	t.Run("nothing is selected", func(t *testing.T) {
		for _, key := range []string{"r", "x", "p", "s"} {
			if got, out := press(s, "1", "tab", "5").Key(key, key); len(out.Actions) > 0 || open(got) || got.toast == "" {
				t.Errorf("%s acts on what nobody sees", key)
			}
		}
		if strings.Contains(frame(s), "r retry") {
			t.Error("retry is offered")
		}
	})
	t.Run("it is asked again after a while only", func(t *testing.T) {
		if _, look := s.fetch(); look != nil {
			t.Error("it asks again at once")
		}
		s := s
		s.Now = s.Now.Add(diagnosticsMaxAge)
		waiting, look := s.fetch()
		if look == nil {
			t.Fatal("it is never asked again")
		}
		if _, again := waiting.fetch(); again != nil {
			t.Error("two ask at once")
		}
		if _, look := press(s, "1").fetch(); look != nil {
			t.Error("it is asked where nobody sees it")
		}
	})
	t.Run("a fault is said, and what the picture has stays", func(t *testing.T) {
		s := s
		s.Now = s.Now.Add(diagnosticsMaxAge)
		s = settle(t, s, &archive{err: errors.New("the daemon answers 404 Not Found")})
		if f := frame(s); !strings.Contains(f, "cannot be read: the daemon answers 404") || !strings.Contains(f, "pid          4121") {
			t.Errorf("the screen:\n%s", f)
		}
	})
	t.Run("a lookup that is ended is done again", func(t *testing.T) {
		at, look := press(shown(picture(), Caps{}), "5").fetch()
		at = look(t.Context(), &archive{err: fmt.Errorf("ask: %w", context.Canceled)})(at)
		if f := frame(at); !strings.Contains(f, "is looked up") || strings.Contains(f, "canceled") {
			t.Errorf("the screen:\n%s", f)
		}
		if at = settle(t, at, src); at.diagnostics.At.IsZero() {
			t.Error("it is not asked again")
		}
	})
	t.Run("a disk that is nearly full is a problem", func(t *testing.T) {
		low := kept()
		low.Store.DiskFree = scarce - 1
		s := settle(t, press(shown(picture(), Caps{}), "5"), &archive{care: low})
		if f := Render(s, 140, 60, s.Caps); !strings.Contains(f, coloured[0][roleBad]+"m  disk") {
			t.Errorf("the screen:\n%s", f)
		}
	})
}
