package tui

import (
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

func TestReadComplaint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jobIssue{
		"":                    {},
		"401 bad credentials": {text: "401 bad credentials"},
		"read a/b.json: no end (file: a/b.json, name: , action: created)":            {text: "read a/b.json: no end", file: "a/b.json"},
		"no end (file: a b/c (1).json, name: c1, action: updated)":                   {text: "a b/c (1).json: no end (c1)", file: "a b/c (1).json"},
		"Dashboard b is there twice (file: a/b.txt, name: b, action: created)":       {text: "a/b.txt: Dashboard b is there twice", file: "a/b.txt"},
		"no (file: x, name: , action: y) more (file: a/b.json, name: zz, action: z)": {text: "a/b.json: no (file: x, name: , action: y) more (zz)", file: "a/b.json"},
		"as it is (file: gone":                                {text: "as it is (file: gone"},
		"dashboards/net/bgp.json: invalid schemaVersion":      {text: "dashboards/net/bgp.json: invalid schemaVersion", file: "dashboards/net/bgp.json"},
		"read \"team/x.yaml\": no kind":                       {text: "read \"team/x.yaml\": no kind", file: "team/x.yaml"},
		"resolve https://git.example.com/team.git: not known": {text: "resolve https://git.example.com/team.git: not known"},
	} {
		want.state = "error"
		if got := parseIssue("error", text); got != want {
			t.Errorf("%q is read as %+v, want %+v", text, got, want)
		}
	}
}

// complaining is a job that has ended with errors of files.
func complaining() *snapshot.Snapshot {
	s := picture()
	j := &s.Jobs[0]
	j.State, j.Finished, j.LeaseUntil, j.RenewAt, j.Log = "error", noon.Add(-time.Second), time.Time{}, time.Time{}, nil
	j.Errors = []string{"no panel (file: dashboards/net/bgp.json, name: bgp, action: updated)", "the quota of the server is used up", strings.Repeat("long ", 60) + "(file: dashboards/net/edge.json, name: edge, action: created)"}
	j.Warnings = []string{"dashboards/net/old.json: folder has no _folder.json"}
	s.Events = []snapshot.Event{{At: noon, Level: "error", Job: j.Name, Repo: j.Repository, Text: j.Errors[0]}, {At: noon.Add(time.Second), Level: "error", Job: j.Name, Repo: j.Repository, Text: j.Errors[1]}}
	return s
}

// TestEnterOnAnError leads to what it is about: the file that the job has changed, else
// the job, and where that is gone its record.
func TestEnterOnAnError(t *testing.T) {
	t.Parallel()
	src := &archive{comparison: changed(), rows: ill(3)}
	s := press(shown(complaining(), Caps{Mono: true, ASCII: true}), "2", "enter")
	for s.section != sectionErrors {
		s = press(s, "tab")
	}
	frame := func(s State) string { return Render(s, 80, 24, s.Caps) }
	t.Run("of a job: the file under the cursor, and back to it", func(t *testing.T) {
		if f := frame(s); !strings.Contains(f, "|>x dashboards/net/bgp.json: no panel  ") || !strings.Contains(f, " 1/4 ") || !strings.Contains(f, "enter its file") {
			t.Errorf("the cursor, or its key, is not seen:\n%s", f)
		}
		at := settle(t, press(s, "enter"), src)
		if at.screen != screenDiff || at.changes.path != "dashboards/net/bgp.json" || !strings.Contains(frame(at), "schemaVersion") {
			t.Errorf("Enter leads to %d, %q:\n%s", at.screen, at.changes.path, frame(at))
		}
		if back := press(at, "esc"); back.screen != screenDetail || back.section != sectionErrors {
			t.Errorf("Esc leads to %d", back.screen)
		}
	})
	t.Run("of a job: what names no file says so", func(t *testing.T) {
		at := press(s, "down")
		if f := frame(at); !strings.Contains(f, "|>x the quota") || !strings.Contains(f, " 2/4 ") || strings.Contains(f, "its file") {
			t.Errorf("the second:\n%s", f)
		}
		never := complaining()
		never.Jobs[0].RefTo = ""
		if at := press(at.Show(never), "enter"); at.toast != "this error names no file" || strings.Contains(frame(at), "its file") {
			t.Errorf("where d shows nothing it says %q", at.toast)
		}
		if at = press(at, "enter"); at.screen != screenDetail || !strings.Contains(at.toast, "names no file") {
			t.Errorf("Enter leads to %d, says %q", at.screen, at.toast)
		}
	})
	t.Run("of a job: the end of a long one, and the last", func(t *testing.T) {
		if at := press(s, "down", "down", "down", "down", "enter"); at.changes.path != "dashboards/net/edge.json" {
			t.Errorf("in the middle of the third: %q", at.changes.path)
		}
		at := press(s, "end")
		if f := frame(at); !strings.Contains(f, "|>! dashboards/net/old.json") || !strings.Contains(f, " 4/4 ") {
			t.Errorf("the last:\n%s", f)
		}
	})
	t.Run("of a job that has changed nothing", func(t *testing.T) {
		same := complaining()
		same.Jobs[0].RefFrom = same.Jobs[0].RefTo
		if at := press(s.Show(same), "enter"); at.screen != screenDetail || !strings.Contains(at.toast, "nothing has changed in Git") {
			t.Errorf("Enter leads to %d, says %q", at.screen, at.toast)
		}
	})
	t.Run("of all: the file, and from there the job", func(t *testing.T) {
		at := press(s, "e", "down", "enter")
		if at.screen != screenDiff || at.changes.path != "dashboards/net/bgp.json" || at.detail != "5c1e9c54" {
			t.Errorf("Enter leads to %d, %q of %q", at.screen, at.changes.path, at.detail)
		}
		if at = press(at, "esc"); at.screen != screenDetail {
			t.Errorf("Esc leads to %d", at.screen)
		}
		if at := press(s, "1", "e", "enter"); at.screen != screenDetail || at.detail != "5c1e9c54" {
			t.Errorf("what names no file leads to %d", at.screen)
		}
	})
	t.Run("of all: the record of a job that is gone", func(t *testing.T) {
		none := picture()
		none.Jobs, none.Events = nil, nil
		if at := press(s.Show(none), "e", "enter"); at.screen != screenHistory || at.filter() != "team-dash-sync" {
			t.Errorf("Enter leads to %d with the filter %q", at.screen, at.filter())
		}
	})
}

// TestComplaintsAreCounted: a job keeps the texts of a few.
func TestComplaintsAreCounted(t *testing.T) {
	t.Parallel()
	j := snapshot.Job{Errors: []string{"a"}, Warnings: make([]string, 20), Summary: []snapshot.Summary{{Error: 1, Warn: 1000}, {Warn: 2000}}}
	if got := issuesTitle(j); got != "Errors 1, Warnings 20 of 3,000" {
		t.Error(got)
	}
}
