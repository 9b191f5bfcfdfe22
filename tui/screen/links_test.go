package screen

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// TestFailingConnection: a failing connection is an issue with a command, and is shown on the
// agent screen. It is reported once for each reason.
func TestFailingConnection(t *testing.T) {
	t.Parallel()
	caps := widget.Caps{Mono: true, ASCII: true}
	ill := func(why string) *snapshot.Snapshot {
		snap := testSnapshot()
		snap.UnhealthyConnections = []snapshot.Connection{{Namespace: "default", Name: "gh\x1b[2J", Checked: noon.Add(-time.Minute),
			Message: why}}
		return snap
	}
	s := shown(testSnapshot(), caps)
	before := len(s.issues.list)
	s = s.Show(ill("401 Bad credentials"))
	s = s.Show(ill("401 Bad credentials"))
	if n := len(s.issues.list) - before; n != 1 {
		t.Fatalf("%d errors of one Connection", n)
	}
	if pane := render(press(s, "e"), 100, 40, caps); !strings.Contains(pane, "gh[2J: Connection: 401 Bad credentials") ||
		!strings.Contains(pane, "limpet connection test 'gh[2J'") {
		t.Errorf("the errors:\n%s", pane)
	}
	{
		at := press(s, "e")
		at.overlay = issuesPane{id: s.issues.list[len(s.issues.list)-1].id}
		if at = press(at, "enter"); at.screen != screenAgent || at.overlay != nil {
			t.Errorf("it opens %v", at.screen)
		}
	}
	agent := settle(t, press(s, "5"), &archive{care: testDiagnostics()})
	if frame := render(agent, 140, 60, caps); !strings.Contains(frame, "x gh[2J: 401 Bad credentials") {
		t.Errorf("the agent:\n%s", frame)
	}
	if s = s.Show(ill("403 suspended")); len(s.issues.list)-before != 2 {
		t.Error("another reason is not told")
	}
	if s = s.Show(testSnapshot()).Show(ill("403 suspended")); s.issues.list[len(s.issues.list)-1].times != 2 {
		t.Error("one that fails again is not told again")
	}
}

// linkTexts returns the linked texts of a frame by address; lines of one address are joined.
func linkTexts(frame string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile("\x1b]8;;([^\a]+)\a(.*?)\x1b]8;;\a").FindAllStringSubmatch(frame, -1) {
		out[m[1]] += "|" + strip(m[2])
	}
	return out
}

// TestAddressesAreLinks: displayed web addresses are links, cut or not, on each detail screen.
// Frames without links have the same text.
func TestAddressesAreLinks(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	long := "https://git.example.com/" + strings.Repeat("a-team/", 20) + "repo.git"
	snap.Jobs[0].URLs = []snapshot.Link{{Name: "compare", URL: long}}
	snap.Repos[0].URL = long
	snap.Sources = sourcesSnapshot().Sources
	s := shown(snap, widget.Caps{Links: true})
	job := press(s, "enter")
	for name, c := range map[string]struct {
		s    State
		w    int
		want string
	}{
		"job": {job, 80, long}, "job, all of it": {job, 250, long}, "repository": {press(s, "3", "enter"), 80, snap.Repos[0].URL},
		"of the overview": {press(s, "1", "tab"), 140, snap.Repos[0].URL}, "source": {press(s, "6", "enter"), 80, snap.Sources[0].Artifact.URL},
	} {
		frame := render(c.s, c.w, 40, c.s.Caps)
		check(t, frame, c.w, 40, c.s.Caps)
		if why := violation(frame, c.w, 40, c.s.Caps); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		if txt, ok := linkTexts(frame)[c.want]; !ok || !strings.Contains(txt, c.want[:min(len(c.want), 20)]) {
			t.Errorf("%s: %q leads to %s", name, txt, c.want)
		}
		for _, none := range []widget.Caps{{}, {Links: true, ASCII: true}, {Links: true, Mono: true}, {Links: true, Theme: 3}} {
			if frame := render(c.s, c.w, 40, none); strings.Contains(frame, "\x1b]") {
				t.Errorf("%s: links in %+v", name, none)
			}
		}
		if strip(frame) != strip(render(c.s, c.w, 40, widget.Caps{})) {
			t.Errorf("%s: not the same text", name)
		}
	}
	if help := render(press(job, "?"), 80, 24, widget.Caps{Links: true}); strings.Contains(help, "\x1b]") {
		t.Error("a link shines through what lies over it")
	}
}

// TestLinksOnlyToTheWeb: only web addresses that cannot end their sequence are links.
func TestLinksOnlyToTheWeb(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{
		"", "-", "git.lab/obs", "ssh://git.lab/obs.git", "git@git.lab:obs.git", "file:///etc/passwd", "javascript:alert(1)", "https://",
		"https:///x", "//git.lab/x",
		"https://git.lab/\x1b]8;;https://evil.example\x1b\\x", "https://git.lab/\a", "https://git.lab/\x9c", "https://git.lab/\u009c",
		"https://git.lab/a b", "https://git.lab/a\nb",
		"https://git.lab/a;b", "https://git.lab/漢", "https://git.lab/\u202egit", "https://user@git.lab/x",
		"https://github.com:pass@evil.example/x", "https://git.lab/%zz",
		"https://git.lab/" + strings.Repeat("x", widget.AddressMost),
	} {
		if got := widget.WebAddress(evil); got != "" {
			t.Errorf("%q leads to %q", evil, got)
		}
		snap := testSnapshot()
		for i := range snap.Jobs {
			snap.Jobs[i].URLs = []snapshot.Link{{Name: "compare", URL: evil}}
		}
		for i := range snap.Repos {
			snap.Repos[i].URL = evil
		}
		for _, keys := range [][]string{{"enter"}, {"3", "enter"}, {"1", "tab"}} {
			s := press(shown(snap, widget.Caps{Links: true}), keys...)
			frame := render(s, 140, 40, s.Caps)
			// Cleaning may turn the text into an address, which is then the displayed one.
			if why := violation(frame, 140, 40, s.Caps); why != "" || widget.WebAddress(text.Clean(evil)) == "" && strings.Contains(frame, "\x1b]") {
				t.Errorf("%q after %q: %s", evil, keys, why)
			}
		}
	}
	for _, good := range []string{"https://git.lab/obs/east.git", "http://[::1]:3000/x?a=b&c=d#L10", "https://git.lab/" +
		strings.Repeat("x", 2000)} {
		if widget.WebAddress(good) != good {
			t.Errorf("%q leads nowhere", good)
		}
	}
}

// positionOf returns the position of a text on the frame of s.
func positionOf(t *testing.T, s *State, w, h int, text string) (x, y int) {
	t.Helper()
	for y, l := range strings.Split(strip(Render(s, w, h)), "\n") {
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
			x, y := positionOf(t, &s, w, h, text)
			return s.Click(x+1, y)
		}
		s := shown(testSnapshot(), widget.Caps{Mono: true})
		at := click(s, "· lab-west-push")
		if j, _ := selected(at); j.UID != "k2m9" || at.screen != screenOverview {
			t.Fatalf("a click selects %q on screen %d", j.UID, at.screen)
		}
		if at = click(at, "· lab-west-push"); at.screen != screenDetail || at.detail.job.UID != "k2m9" {
			t.Errorf("the second click shows screen %d", at.screen)
		}
		at = click(s, "✗ lab-east  ")
		if !at.overview.onRepos || at.repos.cursor != "default/lab-east" {
			t.Errorf("a click on a repository: %+v, %q", at.overview, at.repos.cursor)
		}
		if at = click(at, "✗ lab-east  "); at.screen != screenRepo || at.repo.repo.Name != "lab-east" {
			t.Errorf("the second click shows screen %d", at.screen)
		}
		if at = click(s, "3 Repos"); at.screen != screenRepos {
			t.Errorf("a click on a tab shows screen %d", at.screen)
		}
		past := settle(t, press(s, "4"), &archive{rows: failedRows(34)})
		if at = click(past, "more like these"); len(at.history.items.rows) != len(past.history.items.rows) ||
			at.history.items.cursor != past.history.items.rows[foldShown].key() {
			t.Errorf("a click on a fold: %d lines, cursor %q", len(at.history.items.rows), at.history.items.cursor)
		}
		if at = click(at, "more like these"); len(at.history.items.rows) != 36 {
			t.Errorf("the second click leaves %d lines", len(at.history.items.rows))
		}
	}
	t.Run("the first click on a row selects it, on every list", func(t *testing.T) {
		src := &archive{lately: recentDay(), comparison: changed()}
		repo := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), "3", "down", "enter"), src)
		files := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), "enter", "d"), src)
		for name, tt := range map[string]struct {
			s    State
			text string
			to   screenID
		}{
			"recent jobs": {repo, repo.repo.rows.rows[3].Name, screenDetail},
			"changes":     {files, files.changes.rows.rows[1].Path, screenDiff},
		} {
			x, y := positionOf(t, &tt.s, 100, 40, tt.text)
			at := tt.s.Click(x, y)
			Render(&at, 100, 40)
			if at.screen != tt.s.screen || at.list().cursor == tt.s.list().cursor {
				t.Errorf("%s: screen %d, %q", name, at.screen, at.list().cursor)
			}
			if at = at.Click(x, y); at.screen != tt.to {
				t.Errorf("%s: the second click leaves screen %d", name, at.screen)
			}
		}
		x, y := positionOf(t, &repo, 100, 40, repo.repo.rows.rows[0].Name)
		if at := repo.Click(x, y); at.screen != screenDetail {
			t.Errorf("the row that the cursor is on is not opened: screen %d", at.screen)
		}
	})
	t.Run("a box takes no clicks, and nothing is where nothing is", func(t *testing.T) {
		s := shown(testSnapshot(), widget.Caps{Mono: true})
		x, y := positionOf(t, &s, 80, 24, "lab-west-push")
		if at := press(s, "?").Click(x, y); at.jobs.cursor != s.jobs.cursor {
			t.Error("a click went through the help")
		}
		for _, at := range []State{s.Click(-1, -1), s.Click(79, 23), s.Click(500, 500), s.Click(3, 3)} {
			if at.screen != s.screen || at.jobs.cursor != s.jobs.cursor {
				t.Error("a click beside everything did something")
			}
		}
	})
}
