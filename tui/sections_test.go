package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// wordy is the picture with a job that has much to tell.
func wordy() *snapshot.Snapshot {
	s := picture()
	j := &s.Jobs[0]
	j.URLs = []snapshot.Link{{Name: "compare", URL: "https://github.com/acme/dash/compare/a1b2c3d...4e55f01"}, {Name: "repository", URL: "https://github.com/acme/dash"}}
	j.Errors = nil
	for i := range 12 {
		j.Errors = append(j.Errors, fmt.Sprintf("dashboards/net/board-%02d.json: panels[%d].targets: the query language is unknown here", i, i))
	}
	j.Log = nil
	for i := range 60 {
		text := fmt.Sprintf("made dashboards/net/board-%02d.json", i)
		if i%10 == 9 {
			text = fmt.Sprintf("rejected dashboards/net/board-%02d.json: 422 the query language %q of the panel is unknown on this server, and so it stays as it was", i, "promql")
		}
		j.Log = append(j.Log, snapshot.Event{At: noon.Add(time.Duration(i-60) * time.Second), Level: "info", Text: text})
	}
	return s
}

// longer is the same with so many more lines in its log, of which it keeps 60.
func longer(by int) *snapshot.Snapshot {
	s := wordy()
	j := &s.Jobs[0]
	for i := range by {
		j.Log = append(j.Log, snapshot.Event{At: noon.Add(time.Duration(i) * time.Second), Level: "info", Text: fmt.Sprint("later ", i)})
	}
	j.Log = j.Log[by:]
	return s
}

func TestSectionsOfAJob(t *testing.T) {
	t.Parallel()
	s := press(shown(wordy(), Caps{Mono: true, ASCII: true}), "enter")
	frame := func(s State) string { return Render(s, 80, 24, s.Caps) }
	t.Run("tab and back", func(t *testing.T) {
		want := []section{sectionSummary, sectionErrors, sectionLog}
		at := s
		for i, w := range want {
			if at = press(at, "tab"); at.section != w {
				t.Errorf("tab %d leads to %d, want %d", i, at.section, w)
			}
		}
		if at = press(at, "shift+tab"); at.section != sectionErrors {
			t.Errorf("shift+tab leads to %d", at.section)
		}
	})
	t.Run("what is not on the screen has no focus", func(t *testing.T) {
		snap := wordy()
		snap.Jobs[0].Errors, snap.Jobs[0].Warnings = nil, nil
		good := press(shown(snap, s.Caps), "enter")
		for _, keys := range [][]string{{"tab", "tab"}, {"z", "tab", "tab"}} {
			if at := press(good, keys...); at.section != sectionLog {
				t.Errorf("%q leads to %d", keys, at.section)
			}
		}
		if at := press(good, "shift+tab"); at.section != sectionSummary || strings.Contains(frame(at), "its file") {
			t.Errorf("shift+tab leads to %d:\n%s", at.section, frame(at))
		}
	})
	t.Run("the errors have the focus where they are all there is", func(t *testing.T) {
		snap := wordy()
		j := &snap.Jobs[0]
		j.Log, j.Summary, j.Finished, j.State = nil, nil, noon, "error"
		at := press(shown(snap, s.Caps), "2", "/", "team-dash-sync", "enter", "enter")
		if at.detail != j.UID || at.section != sectionErrors || !strings.Contains(frame(press(at, "end")), "board-11.json") {
			t.Errorf("section %d of %q:\n%s", at.section, at.detail, frame(press(at, "end")))
		}
		past := &archive{rows: ill(1)}
		record := settle(t, press(settle(t, press(shown(picture(), s.Caps), "4"), past), "enter"), past)
		if record.section != sectionErrors {
			t.Errorf("of a record: section %d", record.section)
		}
		turned := press(settle(t, press(shown(picture(), s.Caps), "4"), past), "enter", "tab")
		if turned = settle(t, turned, past); turned.section != sectionSummary {
			t.Errorf("who has turned it: section %d", turned.section)
		}
	})
	t.Run("errors scroll to their end, whole", func(t *testing.T) {
		at := press(s, "tab", "tab", "end")
		if f := frame(at); !strings.Contains(f, "panels[11].targets") && !strings.Contains(f, "unknown here") || strings.Contains(f, "board-00.json: panels") {
			t.Errorf("the end:\n%s", f)
		}
		if up := press(at, "down", "up"); up.tops[sectionErrors] != at.tops[sectionErrors]-1 {
			t.Errorf("one up from %d leads to %d", at.tops[sectionErrors], up.tops[sectionErrors])
		}
	})
	t.Run("z gives one section the screen", func(t *testing.T) {
		if f := frame(press(s, "tab", "tab", "z")); strings.Contains(f, "Log") || strings.Contains(f, "Summary") || !strings.Contains(f, "board-08.json: panels") {
			t.Errorf("errors:\n%s", f)
		}
		f := frame(press(s, "z"))
		if strings.Contains(f, "Errors") || !strings.Contains(f, "made dashboards/net/board-42.json") {
			t.Errorf("log:\n%s", f)
		}
		if again := frame(press(s, "z", "z")); again != frame(s) {
			t.Errorf("z twice:\n%s", again)
		}
		if next := press(s, "z", "esc", "enter"); next.zoomed[screenDetail] {
			t.Error("another visit begins zoomed")
		}
	})
	t.Run("the log follows its end until it is held", func(t *testing.T) {
		if f := frame(s.Show(longer(3))); !strings.Contains(f, "later 2") {
			t.Errorf("it does not follow:\n%s", f)
		}
		last := func(s State) string { return strings.TrimSpace(strings.Split(frame(s), "\n")[20]) }
		for name, held := range map[string]State{"f": press(s, "f"), "up": press(s, "up", "up")} {
			at := held.Show(longer(3))
			if last(at) != last(held) || !strings.Contains(frame(at), "f follows") {
				t.Errorf("%s: it has moved from %q to %q", name, last(held), last(at))
			}
			if f := frame(press(at, "f")); !strings.Contains(f, "later 2") {
				t.Errorf("%s: f does not follow again:\n%s", name, f)
			}
			if at = press(at, "end"); at.logPaused || at.scroll != 0 {
				t.Errorf("%s: at its end it does not follow", name)
			}
		}
		top := press(s, "z", "home")
		if f := frame(top); !strings.Contains(f, "board-00.json") || top.scroll != 60-18 {
			t.Errorf("home scrolls to %d:\n%s", top.scroll, f)
		}
	})
	t.Run("w wraps, and all can be reached", func(t *testing.T) {
		at := press(s, "z", "w", "home")
		if f := frame(at); !strings.Contains(f, "so it stays as it wa") || !strings.Contains(f, "| s  ") || !strings.Contains(f, "board-00.json") {
			t.Errorf("wrapped:\n%s", f)
		}
	})
	t.Run("words find lines", func(t *testing.T) {
		at := press(s, "/", "4", "2", "2", "enter")
		if f := frame(at); strings.Contains(f, " made ") || !strings.Contains(f, `"422": 6 of 60 lines of the log`) {
			t.Errorf("found:\n%s", f)
		}
		if n := len(at.jobs()); n != len(picture().Jobs) {
			t.Errorf("the list of jobs has %d rows", n)
		}
		if f := frame(press(s, "/", "z", "q")); !strings.Contains(f, `No line has "zq"`) {
			t.Errorf("nothing found:\n%s", f)
		}
	})
	t.Run("u copies one address after the other, c the commit", func(t *testing.T) {
		at, out := s.Key("u", "u")
		if out.Copy != "https://github.com/acme/dash/compare/a1b2c3d...4e55f01" || !strings.Contains(at.toast, "(u: repository)") {
			t.Errorf("u copies %q, says %q", out.Copy, at.toast)
		}
		if _, out = at.Key("u", "u"); out.Copy != "https://github.com/acme/dash" {
			t.Errorf("u again copies %q", out.Copy)
		}
		if _, out = s.Key("c", "c"); out.Copy != strings.Repeat("4e55f01a", 5) {
			t.Errorf("c copies %q", out.Copy)
		}
		repo := press(s, "3", "down", "enter")
		if _, out = repo.Key("u", "u"); out.Copy != "https://git.lab/obs/east.git" {
			t.Errorf("u on a repository copies %q", out.Copy)
		}
		if _, out = repo.Key("c", "c"); out.Copy != strings.Repeat("5d41aa90", 5) {
			t.Errorf("c on a repository copies %q", out.Copy)
		}
		if at, out := press(s, "5").Key("u", "u"); out.Copy != "" || at.toast != "no web address is known here" {
			t.Errorf("on the agent's screen u copies %q, says %q", out.Copy, at.toast)
		}
		if !strings.Contains(frame(s), "url    compare https://github.com/") {
			t.Errorf("the address is not shown:\n%s", frame(s))
		}
	})
	t.Run("the pace is told", func(t *testing.T) {
		if f := Render(s, 140, 40, s.Caps); !strings.Contains(f, "205/288   0:42   ~17s left   4.9/s") {
			t.Errorf("the head:\n%s", f)
		}
	})
}

// TestTotals: a server that tells no total has not said that there is nothing.
func TestTotals(t *testing.T) {
	t.Parallel()
	snap := picture()
	snap.Jobs[0].Summary = []snapshot.Summary{{Kind: "Told", Total: 276, Create: 14}, {Kind: "Counted", Create: 1, Update: 2, Delete: 3, Noop: 4, Warn: 5, Error: 6}, {Kind: "Unknown"}, {Kind: "Overflow", Create: 1 << 62, Update: 1 << 62}}
	frame := Render(press(shown(snap, Caps{Mono: true, ASCII: true}), "enter"), 80, 40, Caps{Mono: true, ASCII: true})
	for kind, want := range map[string]string{"Told": "276", "Counted": "21", "Unknown": "-", "Overflow": "-"} {
		_, row, _ := strings.Cut(frame, " "+kind+" ")
		if got := strings.Fields(row); len(got) == 0 || got[0] != want {
			t.Errorf("%s has the total %q, want %q in\n%s", kind, got[:1], want, frame)
		}
	}
}
