package screen

import (
	"fmt"
	"reflect"
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
			if screen != "repository" && !strings.Contains(frame, "2 synced, 1 failing, 1 suspended") {
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

// TestGoldenSizes: the designed sizes of the main screens.
func TestGoldenSizes(t *testing.T) {
	t.Parallel()
	src := &archive{lately: failedRows(5), rows: failedRows(34)}
	for screen, keys := range map[string][]string{"overview": nil, "jobs": {"2"}, "repositories": {"3", "down"},
		"repository": {"3", "down", "enter"}, "job": {"enter"}} {
		for _, size := range fourSizes {
			name := fmt.Sprintf("sizes-%s-%dx%d", screen, size[0], size[1])
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), keys...), src)
				frame := render(s, size[0], size[1], s.Caps)
				check(t, frame, size[0], size[1], s.Caps)
				golden(t, name, frame)
			})
		}
	}
}

// TestLogAndChangesFromALine: l and d open the log and the changes of the job of the row, and Esc leads back.
func TestLogAndChangesFromALine(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	for name, at := range map[string]State{"overview": s, "jobs": press(s, "2"), "repositories": press(s, "3", "end"),
		"repository": press(s, "3", "end", "enter")} {
		log, changes := press(at, "l"), press(at, "d")
		if log.screen != screenDetail || log.detail.Name != "team-dash-sync" || log.detail.focus != sectionLog || !log.detail.zoomed {
			t.Errorf("%s: l leads to screen %d, %q, says %q", name, log.screen, log.detail.Name, log.toast)
		}
		if changes.screen != screenChanges || changes.detail.Name != "team-dash-sync" {
			t.Errorf("%s: d leads to screen %d, %q, says %q", name, changes.screen, changes.detail.Name, changes.toast)
		}
		for _, to := range []State{log, changes} {
			if back := press(to, "esc"); back.screen != at.screen {
				t.Errorf("%s: Esc leads to screen %d", name, back.screen)
			}
		}
	}
	src, idle := &archive{rows: failedRows(3), lately: failedRows(3)}, testSnapshot()
	idle.Jobs = nil
	for name, past := range map[string]State{"history": press(settle(t, press(s, "4"), src), "l"),
		"repository without a live job": settle(t, press(shown(idle, widget.Caps{}), "3", "down", "l"), src)} {
		if past.screen != screenDetail || past.detail.Name != "lab-east-sync-0" || past.detail.zoomed { // its log is not kept
			t.Errorf("%s: screen %d, %q, says %q", name, past.screen, past.detail.Name, past.toast)
		}
	}
	none := settle(t, press(shown(idle, widget.Caps{}), "3", "down", "l"), &archive{})
	if none = none.Show(testSnapshot()); none.screen != screenRepo {
		t.Errorf("a later job: screen %d", none.screen)
	}
}

// TestEveryKeySaysWhy: a key that does nothing says so, also on an overlay, which no key but a named one answers.
func TestEveryKeySaysWhy(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	for _, keys := range []string{"6", "n", "f", "f9", "5 d", "5 l", "4 l", "P r", "P j", "P enter", "P f5", "3 y p", "3 y x", "e x"} {
		at := strings.Fields(keys)
		before := press(s, at[:len(at)-1]...)
		after, out := before.Key(at[len(at)-1], at[len(at)-1])
		if after.toast == "" || !after.toastBad || len(out.Actions) > 0 || after.screen != before.screen ||
			(after.overlay == nil) != (before.overlay == nil) {
			t.Errorf("%s: screen %d, says %q", keys, after.screen, after.toast)
		}
	}
	if at := press(s, "6"); at.toast != "no Flux sources here" {
		t.Errorf("6 says %q", at.toast)
	}
	for _, keys := range [][]string{{"3", "y", "4"}, {"e", "4"}, {"3", "t", "4"}} {
		if at := press(s, keys...); at.screen != screenHistory || at.overlay != nil {
			t.Errorf("%v: the key is swallowed: screen %d", keys, at.screen)
		}
	}
}

// TestTooSmall: below the least size no key acts, whatever it would ask first, but those that leave.
func TestTooSmall(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{MinWidth - 1, 24}, {80, MinHeight - 1}, {30, 8}} {
		for _, keys := range [][]string{nil, {"P"}, {":"}, {"D"}, {"/"}} {
			before := press(shown(testSnapshot(), widget.Caps{}), keys...)
			before.W, before.H, before.Source = size[0], size[1], Standalone
			for _, key := range []string{"P", "y", "p", "x", "2", ":", "enter", "esc", "E", "a", "D"} {
				at, out := before.Key(key, key)
				if out.Quit || len(out.Actions) > 0 || out.Run != nil || out.Edit != nil || at.screen != before.screen || at.Caps != before.Caps {
					t.Errorf("%v, after %v, %s acts: %+v", size, keys, key, out)
				}
			}
			if at := before.Paste("repo list"); !reflect.DeepEqual(at.overlay, before.overlay) || at.filter() != before.filter() {
				t.Errorf("%v, after %v: a paste arrives", size, keys)
			}
			for _, key := range []string{"q", "ctrl+c"} {
				if _, out := before.Key(key, ""); !out.Quit {
					t.Errorf("%v, after %v: %s does not leave", size, keys, key)
				}
			}
		}
	}
}
