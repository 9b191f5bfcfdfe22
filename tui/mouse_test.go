package tui

import (
	"strings"
	"testing"

	"github.com/clipperhouse/displaywidth"
)

// where is the place of a text on the frame of s.
func where(t *testing.T, s State, w, h int, text string) (x, y int) {
	t.Helper()
	for y, l := range strings.Split(strip(Render(s, w, h, s.Caps)), "\n") {
		if at := strings.Index(l, text); at >= 0 {
			return displaywidth.String(l[:at]), y
		}
	}
	t.Fatalf("no %q on the screen", text)
	return 0, 0
}

func TestClicks(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {140, 40}} {
		w, h := size[0], size[1]
		click := func(s State, text string) State {
			x, y := where(t, s, w, h, text)
			return s.Click(x+1, y, w, h)
		}
		s := shown(picture(), Caps{Mono: true})
		at := click(s, "· lab-west-push")
		if j, _ := at.selected(); j.UID != "k2m9" || at.screen != screenOverview {
			t.Fatalf("a click selects %q on screen %d", j.UID, at.screen)
		}
		if at = click(at, "· lab-west-push"); at.screen != screenDetail || at.detail != "k2m9" {
			t.Errorf("the second click shows screen %d", at.screen)
		}
		at = click(s, "✗ lab-east  ")
		if at.focus != paneRepos || at.repoKey != "default/lab-east" {
			t.Errorf("a click on a repository: pane %d, %q", at.focus, at.repoKey)
		}
		if at = click(at, "✗ lab-east  "); at.screen != screenRepo || at.repoSeen.Name != "lab-east" {
			t.Errorf("the second click shows screen %d", at.screen)
		}
		if at = click(s, "3 Repos"); at.screen != screenRepos {
			t.Errorf("a click on a tab shows screen %d", at.screen)
		}
		past := settle(t, press(s, "4"), &archive{rows: ill(34)})
		if at = click(past, "more like these"); len(at.history.items) != len(past.history.items) || at.history.cursor != past.history.items[foldShown].key() {
			t.Errorf("a click on a fold: %d lines, cursor %q", len(at.history.items), at.history.cursor)
		}
		if at = click(at, "more like these"); len(at.history.items) != 36 {
			t.Errorf("the second click leaves %d lines", len(at.history.items))
		}
	}
	t.Run("the first click on a row selects it, on every list", func(t *testing.T) {
		src := &archive{lately: day(), comparison: changed()}
		repo := settle(t, press(shown(picture(), Caps{Mono: true}), "3", "down", "enter"), src)
		files := settle(t, press(shown(picture(), Caps{Mono: true}), "enter", "d"), src)
		for name, tt := range map[string]struct {
			s    State
			text string
			to   screenID
		}{
			"recent jobs": {repo, repo.repoJobs()[3].Name, screenDetail},
			"changes":     {files, files.changed()[1].Path, screenDiff},
		} {
			x, y := where(t, tt.s, 100, 40, tt.text)
			at := tt.s.Click(x, y, 100, 40)
			if at.screen != tt.s.screen || at.cursors() == tt.s.cursors() {
				t.Errorf("%s: screen %d, %q", name, at.screen, at.cursors())
			}
			if at = at.Click(x, y, 100, 40); at.screen != tt.to {
				t.Errorf("%s: the second click leaves screen %d", name, at.screen)
			}
		}
		x, y := where(t, repo, 100, 40, repo.repoJobs()[0].Name)
		if at := repo.Click(x, y, 100, 40); at.screen != screenDetail {
			t.Errorf("the row that the cursor is on is not opened: screen %d", at.screen)
		}
	})
	t.Run("a box takes no clicks, and nothing is where nothing is", func(t *testing.T) {
		s := shown(picture(), Caps{Mono: true})
		x, y := where(t, s, 80, 24, "lab-west-push")
		if at := press(s, "?").Click(x, y, 80, 24); at.jobUID != s.jobUID {
			t.Error("a click went through the help")
		}
		for _, at := range []State{s.Click(-1, -1, 80, 24), s.Click(79, 23, 80, 24), s.Click(500, 500, 80, 24), s.Click(3, 3, 20, 5)} {
			if at.screen != s.screen || at.jobUID != s.jobUID {
				t.Error("a click beside everything did something")
			}
		}
	})
}
