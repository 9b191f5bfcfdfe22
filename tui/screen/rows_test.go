package screen

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

func names(s State) (out []string) {
	if s.list() == &s.repos.position {
		for _, r := range s.repos.rows {
			out = append(out, r.Name)
		}
		return out
	}
	return s.jobs.keys
}

// filtered types a filter into the line of a screen.
func filtered(s State, line string) State {
	return press(s, append(append([]string{"/"}, strings.Split(line, "")...), "enter")...)
}

// TestTransferText: a cell of a job that receives something has what fits.
func TestTransferText(t *testing.T) {
	t.Parallel()
	now := testSnapshot().At
	got := snapshot.Transfer{Phase: "receiving", Since: now, Percent: 45, Bytes: 68 << 10, Rate: 15 << 10, Objects: 9, Total: 20}
	wait := snapshot.Transfer{Phase: "waiting", Since: now.Add(-time.Minute), Percent: -1}
	for _, tt := range []struct {
		of   snapshot.Transfer
		w    int
		want string
	}{
		{got, 60, "receiving objects 45% (9/20), 68 KiB, 15 KiB/s"}, {got, 24, "45% 68 KiB 15 KiB/s"}, {got, 14, "45% 15 KiB/s"},
		{wait, 60, "waiting for the server, 1m"}, {wait, 14, "waiting for the server, 1m"},
	} {
		if s := transferText(tt.of, now, tt.w); s != tt.want {
			t.Errorf("in %d cells: %q, want %q", tt.w, s, tt.want)
		}
	}
}

// TestCountedWarnings: a row and a title have the number of all warnings, not that of the ones
// which are kept.
func TestCountedWarnings(t *testing.T) {
	t.Parallel()
	j := snapshot.Job{Message: "completed with warnings", Warnings: []string{"a", "b", "first 2 of 1501"},
		Summary: []snapshot.Summary{{Warn: 1500, Create: 2}, {Warn: 1}}}
	if title, result := issuesTitle(j), jobResult(j); title != "Errors 0, Warnings 1,501" || !strings.HasPrefix(result, "1501 warnings") {
		t.Errorf("%q %q", title, result)
	}
}

func TestFilterFields(t *testing.T) {
	t.Parallel()
	lives := jobPhases()
	paused := testSnapshot()
	paused.Repos[1].Suspended = true
	s := shown(testSnapshot(), widget.Caps{})
	for _, tt := range []struct {
		s    State
		line string
		want []string
	}{
		{press(s, "2"), "state:error", []string{"y7c1"}},
		{press(s, "2"), "state:err", []string{"y7c1"}},
		{press(s, "2"), "state:error,pending", []string{"k2m9", "z8z8", "y7c1"}},
		{press(s, "2"), "state:other", []string{"44dd1"}},
		{press(s, "2"), "repo:lab-e", []string{"z8z8", "y7c1"}},
		{press(s, "2"), "repo:LAB-EAST incr", []string{"z8z8", "y7c1"}[:0]},
		{press(s, "2"), "repo:lab-east bad", []string{"y7c1"}},
		{press(s, "2"), "action:push", []string{"k2m9"}},
		{press(s, "2"), "action:push repo:team", nil},
		{press(s, "2"), "repo:", names(press(s, "2"))},
		{press(shown(&lives, widget.Caps{}), "2"), "state:waiting", []string{"z8z8"}},
		{press(shown(&lives, widget.Caps{}), "2"), "state:undelivered", []string{"5c1e9c54"}},
		{press(shown(&lives, widget.Caps{}), "2"), "state:dead", []string{"y7c1"}},
		{press(s, "3"), "type:git", []string{"infra-alerts", "lab-east", "lab-west", "team-dash"}},
		{press(s, "3"), "type:gith", []string{"team-dash"}},
		{press(s, "3"), "state:error", []string{"lab-east"}},
		{press(shown(paused, widget.Caps{}), "3"), "state:suspended", []string{"lab-east"}},
		{press(s, "tab"), "repo:lab action:push", []string{"lab-east", "lab-west"}},
		{s, "repo:lab-w type:git", []string{"q0p4", "k2m9"}},
		{press(s, "2"), "type:git", nil},
		{press(s, "2"), "state:eror", nil},
	} {
		if got := names(filtered(tt.s, tt.line)); !slices.Equal(got, tt.want) && len(got)+len(tt.want) > 0 {
			t.Errorf("%s: %q, want %q", tt.line, got, tt.want)
		}
	}
	for line, want := range map[string]string{"state:eror": "did you mean error?", "stat:error": "did you mean state?"} {
		for _, keys := range [][]string{nil, {"2"}, {"3"}} {
			frame := strip(render(filtered(press(s, keys...), line), 140, 24, widget.Caps{}))
			if strings.Count(frame, want) < 2 || !strings.Contains(frame, "Esc clears") {
				t.Errorf("%v %s: the list and the line below do not ask %q:\n%s", keys, line, want, frame)
			}
		}
	}
}

func TestFilterLine(t *testing.T) {
	t.Parallel()
	s := press(shown(testSnapshot(), widget.Caps{}), "2")
	line := func(s State, keys ...string) string { s = press(s, keys...); return s.filter() }
	for want, keys := range map[string][]string{
		"state:":               {"/", "s", "t", "tab"},
		"state:error":          {"/", "s", "t", "tab", "e", "tab"},
		"state:other":          {"/", "s", "t", "tab", "e", "tab", "tab"},
		"repo:lab-east":        {"/", "r", "tab", "l", "tab"},
		"repo:lab-west":        {"/", "r", "tab", "l", "tab", "tab"},
		"action:pr":            {"/", "a", "tab", "tab", "tab", "tab", "backspace", "backspace", "backspace", "backspace", "p", "tab"},
		"x state:error,dead":   {"/", "x", "space", "s", "tab", "e", "tab", ",", "d", "tab"},
		"zz":                   {"/", "z", "z", "tab"},
		"jkgoqpx?":             {"/", "j", "k", "g", "o", "q", "p", "x", "?"},
		"":                     {"/", "a", "esc"},
		"one":                  {"/", "o", "n", "e", "enter", "/", "ctrl+u", "t", "w", "o", "enter", "/", "up", "up"},
		"two":                  {"/", "o", "n", "e", "enter", "/", "ctrl+u", "t", "w", "o", "enter", "/", "up", "up", "down"},
		strings.Repeat("é", 5): {"/", "é", "é", "é", "é", "é"},
	} {
		at := s
		for _, k := range keys {
			typed := k
			if k == "space" {
				typed = " "
			} else if len([]rune(k)) > 1 {
				typed = ""
			}
			at, _ = at.Key(k, typed)
		}
		if at.filter() != want && want != "action:pr" || want == "action:pr" && !strings.HasPrefix(at.filter(), "action:") {
			t.Errorf("%q: the line is %q, want %q", keys, at.filter(), want)
		}
	}
	if got := line(s, "/", "a", "enter", "3", "/", "up"); got != "a" {
		t.Errorf("a filter of another screen: %q", got)
	}
	for i := range 3 * maxFilters {
		s = filtered(press(s, "esc"), fmt.Sprint(i))
	}
	if len(s.filterLine.past) != maxFilters || s.filterLine.past[maxFilters-1] != fmt.Sprint(3*maxFilters-1) {
		t.Errorf("remembered: %q", s.filterLine.past)
	}
	if at := press(shown(testSnapshot(), widget.Caps{}), "5", "/"); at.filterLine.typing || at.toast == "" {
		t.Error("a screen without a filter takes none")
	}
}

func TestSort(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	by := func(s State, name string) State {
		s = press(s, "o")
		at := slices.Index(s.list().sorts, name) - s.overlay.(chooser).at
		for ; at > 0; at-- {
			s = press(s, "down")
		}
		for ; at < 0; at++ {
			s = press(s, "up")
		}
		return press(s, "enter")
	}
	at := by(press(s, "3"), "state")
	if got := names(at); got[0] != "lab-east" {
		t.Errorf("by state: %q", got)
	}
	at = by(at, "objects")
	if got := names(at); got[0] != "lab-west" || got[3] != "infra-alerts" {
		t.Errorf("by objects: %q", got)
	}
	if got := names(by(at, "objects")); got[3] != "lab-west" || got[0] != "infra-alerts" {
		t.Errorf("again: %q", got)
	}
	if frame := strip(render(by(at, "objects"), 80, 24, widget.Caps{})); !strings.Contains(frame, "Repositories, by objects "+
		widget.UnicodeGlyphs.Down) {
		t.Errorf("the title does not say so:\n%s", frame)
	}
	if got := names(press(at, "1", "3")); got[0] != "lab-west" {
		t.Errorf("it is lost on the way back: %q", got)
	}
	if at.repos.cursor != s.repos.cursor {
		t.Errorf("the cursor has moved to %q", at.repos.cursor)
	}
	if got := names(by(at, "name")); got[0] != "infra-alerts" {
		t.Errorf("by name: %q", got)
	}
	want := map[string]string{"job": "9x1ab", "repository": "9x1ab", "action": "q0p4", "state": "y7c1", "age": "44dd1", "progress": "44dd1"}
	for name, uid := range want {
		if got := names(by(press(s, "2"), name)); got[0] != uid || len(got) != len(s.Snap.Jobs) {
			t.Errorf("jobs by %s: %q", name, got)
		}
	}
	for _, of := range []screenID{screenJobs, screenRepos} {
		for i, o := range s.at(of).(lister).listPosition().sorts {
			snap := testSnapshot()
			at := shown(snap, widget.Caps{})
			at.at(of).(lister).listPosition().order = order{by: i, reverse: true}
			if at = at.Show(snap); len(at.jobs.rows) != len(snap.Jobs) || len(at.repos.rows) != len(snap.Repos) || snap.Jobs[0].UID != "5c1e9c54" {
				t.Errorf("by %s rows are lost, or the snapshot was changed", o)
			}
		}
	}
	if closed := press(s, "o", "esc"); closed.overlay != nil || closed.jobs.order != s.jobs.order {
		t.Error("Esc must leave the order")
	}
	if at := press(s, "enter", "o"); at.overlay != nil || at.toast == "" {
		t.Error("there is no list to sort")
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	t.Run("one question for all that are marked", func(t *testing.T) {
		at := press(s, "3", "space", "down", "space", "P")
		if said := askedText(at); !strings.Contains(said, "of 2 repositories?") || !strings.Contains(said, "infra-alerts, lab-west") ||
			!strings.Contains(said, "319 objects") {
			t.Errorf("asks %q", said)
		}
		if _, out := at.Key("enter", ""); len(out.Actions) > 0 {
			t.Error("Enter decides nothing")
		}
		if _, out := at.Key("y", "y"); len(out.Actions) != 2 || out.Actions[0].Name != "infra-alerts" ||
			out.Actions[1].Name != "lab-west" || out.Actions[1].Verb != snapshot.PullFull {
			t.Errorf("sends %+v", out.Actions)
		}
		at = press(s, "3", "*")
		if at, out := at.Key("p", "p"); len(out.Actions) != 4 || open(at) { // cheap and harmless: no question
			t.Errorf("p on all: %+v, %q", out.Actions, askedText(at))
		}
	})
	t.Run("what is long to undo has to be typed", func(t *testing.T) {
		snap := testSnapshot()
		snap.Repos[0].Resources = 500
		snap.Jobs[5].Finished, snap.Jobs[5].State, snap.Jobs[5].Action = noon, "error", "push"
		for _, keys := range [][]string{{"3", "*", "P"}, {"2", "*", "r"}} {
			at := press(shown(snap, widget.Caps{}), keys...)
			q, _ := at.overlay.(confirm)
			if _, out := at.Key("y", "y"); len(out.Actions) > 0 || !strings.HasPrefix(q.name, "all ") {
				t.Errorf("%v: %+v, name %q", keys, out, q.name)
			}
			at = press(at, strings.Split(q.name, "")...)
			if _, out := at.Key("enter", ""); len(out.Actions) < 2 {
				t.Errorf("%v: %+v", keys, out)
			}
		}
	})
	t.Run("what cannot be is left out", func(t *testing.T) {
		at := press(s, "2", "*", "x")
		if _, out := at.Key("y", "y"); len(out.Actions) != 6 || strings.Contains(askedText(at), " 7 jobs") {
			t.Errorf("one has ended: %d, %q", len(out.Actions), askedText(at))
		}
		at = press(s, "2", "*", "r")
		if _, out := at.Key("y", "y"); len(out.Actions) != 1 || out.Actions[0].UID != "y7c1" {
			t.Errorf("one can be run again: %+v", out.Actions)
		}
	})
	t.Run("the repositories of marked jobs are pulled once each", func(t *testing.T) {
		if _, out := press(s, "2", "*").Key("p", "p"); len(out.Actions) != 4 {
			t.Errorf("%+v", out.Actions)
		}
	})
	t.Run("nothing is done to what is not shown", func(t *testing.T) {
		at := filtered(press(s, "2", "*"), "lab-west")
		if _, out := press(at, "x").Key("y", "y"); len(out.Actions) != 2 {
			t.Errorf("%+v", out.Actions)
		}
		if at, out := press(s, "2", "*", "1", "tab", "p"), (Outcome{}); len(out.Actions) > 0 || open(at) {
			t.Error("the marks of one list are used in another")
		}
	})
	t.Run("Esc takes the filter away, then the marks", func(t *testing.T) {
		at := press(filtered(press(s, "2", "*"), "lab"), "esc")
		if at.filter() != "" || len(at.jobs.marks) != 4 { // the others were hidden
			t.Fatalf("filter %q, %d marks", at.filter(), len(at.jobs.marks))
		}
		if at = press(at, "esc"); len(at.jobs.marks) != 0 || at.screen != screenJobs {
			t.Errorf("%d marks on screen %d", len(at.jobs.marks), at.screen)
		}
	})
	t.Run("a mark goes with its row, and older states keep theirs", func(t *testing.T) {
		at := press(s, "2", "space", "space")
		snap := testSnapshot()
		snap.Jobs = snap.Jobs[1:]
		if later := at.Show(snap); !slices.Equal(later.jobs.marks, []string{"9x1ab"}) || len(at.jobs.marks) != 2 {
			t.Errorf("%q, before %q", later.jobs.marks, at.jobs.marks)
		}
		if again := press(at, "up", "space"); len(again.jobs.marks) != 1 ||
			!slices.Equal(at.jobs.marks, []string{"5c1e9c54", "9x1ab"}) {
			t.Errorf("%q, before %q", again.jobs.marks, at.jobs.marks)
		}
		if none := press(s, "2", "*", "*"); len(none.jobs.marks) != 0 {
			t.Error("* again must take them away")
		}
	})
	t.Run("they are seen without colours", func(t *testing.T) {
		frame := render(press(s, "2", "space"), 80, 24, widget.Caps{Mono: true, ASCII: true})
		if !strings.Contains(frame, "1 marked, 2 of 7") || !strings.Contains(frame, "|  *") && !strings.Contains(frame, "| *") {
			t.Errorf("no mark in\n%s", frame)
		}
	})
}

// TestPaste: pasted text goes into the input line, on one line, and answers nothing else.
func TestPaste(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	if got := press(s, "2", "/").Paste("repo:lab-east\nst\x1b[2Jate:error"); got.filter() != "repo:lab-east st[2Jate:error" {
		t.Errorf("the filter is %q", got.filter())
	}
	if got := press(s, ":").Paste("go agent"); got.overlay.(chooser).text != "go agent" {
		t.Errorf("the palette has %q", got.overlay.(chooser).text)
	}
	for _, keys := range [][]string{nil, {"x"}, {"e"}, {"o"}} {
		at := press(s, keys...)
		if got := at.Paste("y"); got.overlay == nil != (at.overlay == nil) || got.screen != at.screen {
			t.Errorf("after %v it does something", keys)
		}
	}
}

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

// TestSuspendedLooksSuspended: a suspended repository has a glyph, a word and a count of its own at
// every size.
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

// TestLogAndChangesFromALine: l and d open the log and the changes of the job of the row, and Esc
// leads back.
func TestLogAndChangesFromALine(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	for name, at := range map[string]State{"overview": s, "jobs": press(s, "2"), "repositories": press(s, "3", "end"),
		"repository": press(s, "3", "end", "enter")} {
		log, changes := press(at, "l"), press(at, "d")
		if log.screen != screenDetail || log.detail.subject.object.Name != "team-dash-sync" || log.detail.focus != sectionLog || !log.detail.zoomed {
			t.Errorf("%s: l leads to screen %d, %q, says %q", name, log.screen, log.detail.subject.object.Name, log.toast)
		}
		if changes.screen != screenChanges || changes.detail.subject.object.Name != "team-dash-sync" {
			t.Errorf("%s: d leads to screen %d, %q, says %q", name, changes.screen, changes.detail.subject.object.Name, changes.toast)
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
		if past.screen != screenDetail || past.detail.subject.object.Name != "lab-east-sync-0" || past.detail.zoomed { // its log is not kept
			t.Errorf("%s: screen %d, %q, says %q", name, past.screen, past.detail.subject.object.Name, past.toast)
		}
	}
	none := settle(t, press(shown(idle, widget.Caps{}), "3", "down", "l"), &archive{})
	if none = none.Show(testSnapshot()); none.screen != screenRepo {
		t.Errorf("a later job: screen %d", none.screen)
	}
}

// TestEveryKeySaysWhy: a key that does nothing says so, also on an overlay, which no key but a
// named one answers.
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

// TestTooSmall: below the least size no key acts, whatever it would ask first, but those that
// leave.
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
