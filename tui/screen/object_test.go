package screen

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// onFile completes command lines as those of a dashboard of another state file.
type onFile struct{}

func (onFile) Complete(line string) string {
	if !strings.Contains(line, "limpet ") {
		return line
	}
	return line + " --state /x.db"
}

// TestCommandsKeepTheTarget: each command line that is shown or copied selects the state file of
// the dashboard.
func TestCommandsKeepTheTarget(t *testing.T) {
	t.Parallel()
	for _, snap := range []*snapshot.Snapshot{testSnapshot(), sourcesSnapshot()} {
		start := NewState("attached to daemon 4121", widget.Caps{}, noon)
		start.Invocation = onFile{}
		start = start.Show(snap)
		for _, tab := range []string{"1", "2", "3", "4", "5", "6"} {
			for _, s := range []State{press(start, tab), press(start, tab, "enter")} {
				for _, c := range allCommands(&s) {
					if line := s.line(c); line != "" && !strings.HasSuffix(line, " --state /x.db") {
						t.Errorf("%s: %q", c.words, line)
					}
				}
				for _, key := range []string{"Y", "D"} {
					if _, out := s.Key(key, key); out.Copy != "" && !strings.HasSuffix(out.Copy, " --state /x.db") {
						t.Errorf("%s copies %q", key, out.Copy)
					}
				}
				for _, e := range s.issues.list {
					if next := nextCommand(&s.facts, e); !strings.HasSuffix(next, " --state /x.db") {
						t.Errorf("issue: %q", next)
					}
				}
			}
		}
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	s := press(shown(testSnapshot(), widget.Caps{}), "3", "down")
	_, out := s.Key("E", "E")
	if out.Edit == nil || out.Edit.Name != "lab-east" || out.Edit.UID != "r2" || out.Copy != "" ||
		out.EditLine != "limpet edit repository lab-east" {
		t.Fatalf("%+v", out)
	}
	e := *out.Edit
	e.Before, e.After = eastYAML, strings.Replace(eastYAML, "main", "next", 1)
	src := &archive{edited: snapshot.Edited{Diff: snapshot.TextChange{Lines: []snapshot.TextLine{{Op: "-", Text: "main"}, {Op: "+", Text: "next"}}}}}
	asked := settle(t, s.Edited(e), src)
	if f := strip(render(asked, 80, 24, asked.Caps)); !strings.Contains(f, "+next") || !strings.Contains(f, "lab-east?") {
		t.Errorf("no difference in\n%s", f)
	}
	yes, out := asked.Key("y", "y")
	if out.Edit == nil || !out.Edit.Apply || out.Edit.After != e.After || yes.overlay != nil {
		t.Errorf("y sends %+v", out.Edit)
	}
	if no, out := asked.Key("n", "n"); out.Edit != nil || no.overlay != nil {
		t.Errorf("n sends %+v", out.Edit)
	}
	if _, out := asked.Key("E", "E"); out.Edit == nil || out.Edit.Apply || out.Edit.After != e.After {
		t.Errorf("E edits %+v again", out.Edit)
	}
	refused := settle(t, s.Edited(e), &archive{err: errors.New("spec.git.branch: invalid")})
	if _, out := refused.Key("y", "y"); out.Edit != nil || !strings.Contains(strip(render(refused, 80, 24, s.Caps)), "spec.git.branch: invalid") {
		t.Errorf("what the API refuses is applied: %+v", out.Edit)
	}
	e.After = e.Before
	if same := s.Edited(e); same.overlay != nil || same.toast == "" {
		t.Error("a question about no change")
	}
	s.ReadOnly = true
	if after, out := s.Key("E", "E"); out.Edit != nil || !after.toastBad {
		t.Error("edits with --read-only")
	}
}

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
		if at = click(at, "· lab-west-push"); at.screen != screenDetail || at.detail.subject.object.job.UID != "k2m9" {
			t.Errorf("the second click shows screen %d", at.screen)
		}
		at = click(s, "✗ lab-east  ")
		if !at.overview.onRepos || at.repos.cursor != "default/lab-east" {
			t.Errorf("a click on a repository: %+v, %q", at.overview, at.repos.cursor)
		}
		if at = click(at, "✗ lab-east  "); at.screen != screenRepo || at.repo.page.subject.object.repo.Name != "lab-east" {
			t.Errorf("the second click shows screen %d", at.screen)
		}
		if at = click(s, "3 Repos"); at.screen != screenRepos {
			t.Errorf("a click on a tab shows screen %d", at.screen)
		}
	}
	t.Run("the first click on a row selects it, on every list", func(t *testing.T) {
		src := &archive{lately: failedRows(5), comparison: changed()}
		repo := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), "3", "down", "enter"), src)
		files := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true}), "enter", "d"), src)
		for name, tt := range map[string]struct {
			s    State
			text string
			to   screenID
		}{
			"recent jobs": {repo, repo.repo.page.rows.rows[3].Name, screenDetail},
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
		x, y := positionOf(t, &repo, 100, 40, repo.repo.page.rows.rows[0].Name)
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
