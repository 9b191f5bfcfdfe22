package screen

import (
	"errors"
	"strings"
	"testing"

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

// TestCommandsKeepTheTarget: each command line that is shown or copied selects the state file of the dashboard.
func TestCommandsKeepTheTarget(t *testing.T) {
	t.Parallel()
	for _, snap := range []*snapshot.Snapshot{testSnapshot(), sourcesSnapshot()} {
		start := NewState("attached to daemon 4121", widget.Caps{}, noon)
		start.Invocation = onFile{}
		start = start.Show(snap)
		for _, tab := range []string{"1", "2", "3", "4", "5", "6"} {
			for _, s := range []State{press(start, tab), press(start, tab, "enter")} {
				for _, c := range commands(&s) {
					if c.line == nil {
						continue
					}
					if line := c.line(&s); line != "" && !strings.HasSuffix(line, " --state /x.db") {
						t.Errorf("%s: %q", c.words, line)
					}
				}
				for _, key := range []string{"Y", "D"} {
					if _, out := s.Key(key, key); out.Copy != "" && !strings.HasSuffix(out.Copy, " --state /x.db") {
						t.Errorf("%s copies %q", key, out.Copy)
					}
				}
				for _, e := range s.issues.list {
					if next := s.next(e); !strings.HasSuffix(next, " --state /x.db") {
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
