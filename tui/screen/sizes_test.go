package screen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/tui/widget"
)

// fourSizes are the terminals for which the screens are designed.
var fourSizes = [][2]int{{60, 15}, {80, 24}, {140, 40}, {200, 60}}

// eachSize calls f with a frame of s on each of the four terminals, in glyphs and in ASCII.
func eachSize(s State, f func(size, frame string, caps widget.Caps)) {
	for _, size := range fourSizes {
		for _, caps := range []widget.Caps{{Mono: true}, {Mono: true, ASCII: true}} {
			s.Caps = caps
			f(fmt.Sprintf("%dx%d", size[0], size[1]), strip(render(s, size[0], size[1], caps)), caps)
		}
	}
}

// TestSuspendedLooksSuspended: a suspended repository has a glyph, a word and a count of its own at every size.
func TestSuspendedLooksSuspended(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	snap.Repos[2].Suspended, snap.Repos[2].Next = true, noon.Add(23*time.Hour)
	name := snap.Repos[2].Name
	for screen, keys := range map[string][]string{"overview": nil, "its repositories": {"tab"}, "repositories": {"3"},
		"repository": {"3", "down", "down", "enter"}} {
		eachSize(press(shown(snap, widget.Caps{}), keys...), func(size, frame string, caps widget.Caps) {
			glyph, narrow := caps.Glyphs().State["suspended"], strings.HasPrefix(size, "60")
			if screen != "repository" && !strings.Contains(frame, "2 healthy, 1 failing, 1 suspended") {
				t.Errorf("%s %s: no count in\n%s", screen, size, frame)
			}
			for line := range strings.Lines(frame) {
				row := strings.Contains(line, name) && strings.Contains(line, "success") && screen != "repository"
				if row && (!strings.Contains(line, " "+glyph+" "+name) || !strings.Contains(line, "suspended")) {
					t.Errorf("%s %s: %q", screen, size, line)
				}
			}
			if screen == "repository" && !strings.Contains(frame, glyph+" on this agent until ") || !narrow && !strings.Contains(frame, glyph) {
				t.Errorf("%s %s: no glyph in\n%s", screen, size, frame)
			}
		})
	}
	if widget.StateRole("suspended") == widget.StateRole("success") {
		t.Error("it has the colour of a healthy one")
	}
}
