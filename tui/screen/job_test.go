package screen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// longTexts returns the test snapshot with a job with many texts.
func longTexts() *snapshot.Snapshot {
	s := testSnapshot()
	j := &s.Jobs[0]
	j.URLs = []snapshot.Link{{Name: "compare", URL: "https://github.com/acme/dash/compare/a1b2c3d...4e55f01"},
		{Name: "repository", URL: "https://github.com/acme/dash"}}
	j.Errors = nil
	for i := range 12 {
		j.Errors = append(j.Errors, fmt.Sprintf("dashboards/net/board-%02d.json: panels[%d].targets: the query language is unknown here", i, i))
	}
	j.Log = nil
	for i := range 60 {
		text := fmt.Sprintf("made dashboards/net/board-%02d.json", i)
		if i%10 == 9 {
			text = fmt.Sprintf("rejected dashboards/net/board-%02d.json: 422 the query language %q of the panel is unknown on this "+
				"server, and so it stays as it was", i, "promql")
		}
		j.Log = append(j.Log, snapshot.Event{At: noon.Add(time.Duration(i-60) * time.Second), Level: "info", Text: text})
	}
	return s
}

// longerLog returns the same with more lines in its log, of which it keeps 60.
func longerLog(by int) *snapshot.Snapshot {
	s := longTexts()
	j := &s.Jobs[0]
	for i := range by {
		j.Log = append(j.Log, snapshot.Event{At: noon.Add(time.Duration(i) * time.Second), Level: "info", Text: fmt.Sprint("later ", i)})
	}
	j.Log = j.Log[by:]
	return s
}

func TestSectionsOfAJob(t *testing.T) {
	t.Parallel()
	s := press(shown(longTexts(), widget.Caps{Mono: true, ASCII: true}), "enter")
	frame := func(s State) string { return render(s, 80, 24, s.Caps) }
	t.Run("the errors have the focus where they are all there is", func(t *testing.T) {
		snap := longTexts()
		j := &snap.Jobs[0]
		j.Log, j.Summary, j.Finished, j.State = nil, nil, noon, "error"
		at := press(shown(snap, s.Caps), "2", "/", "team-dash-sync", "enter", "enter")
		if at.detail.subject.object.job.UID != j.UID || at.detail.focus != sectionErrors || !strings.Contains(frame(press(at, "end")), "board-11.json") {
			t.Errorf("section %d of %q:\n%s", at.detail.focus, at.detail.subject.object.job.UID, frame(press(at, "end")))
		}
		past := &archive{rows: failedRows(1)}
		record := settle(t, press(settle(t, press(shown(testSnapshot(), s.Caps), "4"), past), "enter"), past)
		if record.detail.focus != sectionErrors {
			t.Errorf("of a record: section %d", record.detail.focus)
		}
		turned := press(settle(t, press(shown(testSnapshot(), s.Caps), "4"), past), "enter", "tab")
		if turned = settle(t, turned, past); turned.detail.focus != sectionSummary {
			t.Errorf("who has turned it: section %d", turned.detail.focus)
		}
	})
	t.Run("the log follows its end until it is held", func(t *testing.T) {
		if f := frame(s.Show(longerLog(3))); !strings.Contains(f, "later 2") {
			t.Errorf("it does not follow:\n%s", f)
		}
		last := func(s State) string { return strings.TrimSpace(strings.Split(frame(s), "\n")[20]) }
		for name, held := range map[string]State{"f": press(s, "f"), "up": press(s, "up", "up")} {
			at := held.Show(longerLog(3))
			if last(at) != last(held) || !strings.Contains(frame(at), "f follows") {
				t.Errorf("%s: it has moved from %q to %q", name, last(held), last(at))
			}
			if f := frame(press(at, "f")); !strings.Contains(f, "later 2") {
				t.Errorf("%s: f does not follow again:\n%s", name, f)
			}
			if at = press(at, "end"); at.detail.paused {
				t.Errorf("%s: at its end it does not follow", name)
			}
		}
		top := press(s, "z", "home")
		if f := frame(top); !strings.Contains(f, "board-00.json") || top.detail.tops[sectionLog] != 0 {
			t.Errorf("home scrolls to %d:\n%s", top.detail.tops[sectionLog], f)
		}
	})
	t.Run("w wraps, and all can be reached", func(t *testing.T) {
		at := press(s, "z", "w", "home")
		if f := frame(at); !strings.Contains(f, "so it stays as it wa") || !strings.Contains(f, "| s  ") ||
			!strings.Contains(f, "board-00.json") {
			t.Errorf("wrapped:\n%s", f)
		}
	})
	t.Run("words find lines", func(t *testing.T) {
		at := press(s, "/", "4", "2", "2", "enter")
		if f := frame(at); strings.Contains(f, " made ") || !strings.Contains(f, `"422": 6 of 60 lines of the log`) {
			t.Errorf("found:\n%s", f)
		}
		if n := len(at.jobs.rows); n != len(testSnapshot().Jobs) {
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
		if _, out = press(repo, "tab").Key("c", "c"); out.Copy != strings.Repeat("5d41aa90", 5) {
			t.Errorf("c on a repository copies %q", out.Copy)
		}
		if at, out := repo.Key("c", "c"); out.Copy != "" || at.toast != "no commit is known here" {
			t.Errorf("c on its job, which has no commit, copies %q", out.Copy)
		}
		if at, out := press(s, "5").Key("u", "u"); out.Copy != "" || at.toast != "no web address is known here" {
			t.Errorf("on the agent's screen u copies %q, says %q", out.Copy, at.toast)
		}
		if !strings.Contains(frame(s), "url    compare https://github.com/") {
			t.Errorf("the address is not shown:\n%s", frame(s))
		}
	})
	t.Run("the pace is told", func(t *testing.T) {
		if f := render(s, 140, 40, s.Caps); !strings.Contains(f, "205/288   42s   ~17s left   4.9/s") {
			t.Errorf("the head:\n%s", f)
		}
	})
}

// TestTotals: a missing total is not zero.
func TestTotals(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	snap.Jobs[0].Summary = []snapshot.Summary{{Kind: "Told", Total: 276, Create: 14},
		{Kind: "Counted", Create: 1, Update: 2, Delete: 3, Noop: 4, Warn: 5, Error: 6}, {Kind: "Unknown"},
		{Kind: "Overflow", Create: 1 << 62, Update: 1 << 62}}
	frame := render(press(shown(snap, widget.Caps{Mono: true, ASCII: true}), "enter"), 80, 40, widget.Caps{Mono: true, ASCII: true})
	for kind, want := range map[string]string{"Told": "276", "Counted": "21", "Unknown": "-", "Overflow": "-"} {
		_, row, _ := strings.Cut(frame, " "+kind+" ")
		if got := strings.Fields(row); len(got) == 0 || got[0] != want {
			t.Errorf("%s has the total %q, want %q in\n%s", kind, got[:1], want, frame)
		}
	}
}

func TestParseIssue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jobIssue{
		"":                    {},
		"401 bad credentials": {text: "401 bad credentials"},
		"read a/b.json: no end (file: a/b.json, name: , action: created)": {text: "read a/b.json: no end", file: "a/b.json"},
		"read a/b.json: bad (file: a/b.json, action: ignored)":            {text: "read a/b.json: bad", file: "a/b.json"},
		"no end (file: a b/c (1).json, name: c1, action: updated)": {text: "a b/c (1).json: no end (c1)",
			file: "a b/c (1).json"},
		"Dashboard b is there twice (file: a/b.txt, name: b, action: created)": {text: "a/b.txt: Dashboard b is there twice",
			file: "a/b.txt"},
		"no (file: x, name: , action: y) more (file: a/b.json, name: zz, " +
			"action: z)": {text: "a/b.json: no (file: x, name: , action: y) more (zz)", file: "a/b.json"},
		"as it is (file: gone": {text: "as it is (file: gone"},
		"dashboards/net/bgp.json: invalid schemaVersion": {text: "dashboards/net/bgp.json: invalid schemaVersion",
			file: "dashboards/net/bgp.json"},
		"read \"team/x.yaml\": no kind":                       {text: "read \"team/x.yaml\": no kind", file: "team/x.yaml"},
		"resolve https://git.example.com/team.git: not known": {text: "resolve https://git.example.com/team.git: not known"},
	} {
		want.state = "error"
		if got := parseIssue("error", text); got != want {
			t.Errorf("%q is read as %+v, want %+v", text, got, want)
		}
	}
}

// jobWithIssues returns a snapshot with a finished job with errors about files.
func jobWithIssues() *snapshot.Snapshot {
	s := testSnapshot()
	j := &s.Jobs[0]
	j.State, j.Finished, j.LeaseUntil, j.RenewAt, j.Log = "error", noon.Add(-time.Second), time.Time{}, time.Time{}, nil
	j.Errors = []string{"no panel (file: dashboards/net/bgp.json, name: bgp, action: updated)", "the quota of the server is used up",
		strings.Repeat("long ", 60) + "(file: dashboards/net/edge.json, name: edge, action: created)"}
	j.Warnings = []string{"dashboards/net/old.json: folder has no _folder.json"}
	s.Events = []snapshot.Event{{At: noon, Level: "error", Job: j.Name, Repo: j.Repository, Text: j.Errors[0]},
		{At: noon.Add(time.Second), Level: "error", Job: j.Name, Repo: j.Repository, Text: j.Errors[1]}}
	return s
}

// TestEnterOnAnError: Enter opens the file that the job has changed, else the job, else its record.
func TestEnterOnAnError(t *testing.T) {
	t.Parallel()
	src := &archive{comparison: changed(), rows: failedRows(3)}
	s := press(shown(jobWithIssues(), widget.Caps{Mono: true, ASCII: true}), "2", "enter")
	for s.detail.focus != sectionErrors {
		s = press(s, "tab")
	}
	frame := func(s State) string { return render(s, 80, 24, s.Caps) }
	t.Run("of a job: the file under the cursor, and back to it", func(t *testing.T) {
		if f := frame(s); !strings.Contains(f, "|>x dashboards/net/bgp.json: no panel  ") ||
			!strings.Contains(f, "enter its file") {
			t.Errorf("the cursor, or its key, is not seen:\n%s", f)
		}
		at := settle(t, press(s, "enter"), src)
		if at.screen != screenDiff || at.path != "dashboards/net/bgp.json" || !strings.Contains(frame(at), "schemaVersion") {
			t.Errorf("Enter leads to %d, %q:\n%s", at.screen, at.path, frame(at))
		}
		if back := press(at, "esc"); back.screen != screenDetail || back.detail.focus != sectionErrors {
			t.Errorf("Esc leads to %d", back.screen)
		}
	})
	t.Run("of a job: what names no file says so", func(t *testing.T) {
		at := press(s, "down")
		if f := frame(at); !strings.Contains(f, "|>x the quota") || strings.Contains(f, "its file") {
			t.Errorf("the second:\n%s", f)
		}
		never := jobWithIssues()
		never.Jobs[0].RefTo = ""
		if at := press(at.Show(never), "enter"); !strings.Contains(at.toast, "names no file") || strings.Contains(frame(at), "its file") {
			t.Errorf("where d shows nothing it says %q", at.toast)
		}
		if at = press(at, "enter"); at.screen != screenDetail || !strings.Contains(at.toast, "names no file") {
			t.Errorf("Enter leads to %d, says %q", at.screen, at.toast)
		}
	})
	t.Run("of a job: the end of a long one, and the last", func(t *testing.T) {
		if at := press(s, "down", "down", "down", "down", "enter"); at.path != "dashboards/net/edge.json" {
			t.Errorf("in the middle of the third: %q", at.path)
		}
		at := press(s, "end")
		if f := frame(at); !strings.Contains(f, "|>! dashboards/net/old.json") {
			t.Errorf("the last:\n%s", f)
		}
	})
	t.Run("of a job that has changed nothing", func(t *testing.T) {
		same := jobWithIssues()
		same.Jobs[0].RefFrom = same.Jobs[0].RefTo
		if at := press(s.Show(same), "enter"); at.screen != screenDetail || !strings.Contains(at.toast, "nothing has changed in Git") {
			t.Errorf("Enter leads to %d, says %q", at.screen, at.toast)
		}
	})
	t.Run("of all: the file, and from there the job", func(t *testing.T) {
		at := press(s, "e", "down", "enter")
		if at.screen != screenDiff || at.path != "dashboards/net/bgp.json" || at.detail.subject.object.job.UID != "5c1e9c54" {
			t.Errorf("Enter leads to %d, %q of %q", at.screen, at.path, at.detail.subject.object.job.UID)
		}
		if at = press(at, "esc"); at.screen != screenDetail {
			t.Errorf("Esc leads to %d", at.screen)
		}
		if at := press(s, "1", "e", "enter"); at.screen != screenDetail || at.detail.subject.object.job.UID != "5c1e9c54" {
			t.Errorf("what names no file leads to %d", at.screen)
		}
	})
	t.Run("of all: the record of a job that is gone", func(t *testing.T) {
		none := testSnapshot()
		none.Jobs, none.Events = nil, nil
		if at := press(s.Show(none), "e", "enter"); at.screen != screenHistory || at.filter() != "team-dash-sync" {
			t.Errorf("Enter leads to %d with the filter %q", at.screen, at.filter())
		}
	})
}

func TestRepositoryShowsItsJobs(t *testing.T) {
	t.Parallel()
	src := &archive{rows: failedRows(5), lately: failedRows(5)}
	first := press(shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), "3", "down", "enter")
	frame := func(s State) string { return render(s, 100, 40, s.Caps) }
	if n := len(first.repo.page.rows.rows); n != 2 {
		t.Errorf("before the answer: %d jobs", n)
	}
	s := settle(t, first, src)
	if len(src.watched) != 1 || src.watched[0] != "default/lab-east" {
		t.Fatalf("asked %q", src.watched)
	}
	for _, want := range []string{"Recent jobs"} {
		if !strings.Contains(frame(s), want) {
			t.Errorf("no word of %q in\n%s", want, frame(s))
		}
	}
	rows := s.repo.page.rows.rows // two of the snapshot, then earlier ones
	if len(rows) != 2+7 {
		t.Fatalf("%d jobs", len(rows))
	}
	t.Run("enter opens the one under the cursor, esc leads back to it", func(t *testing.T) {
		if at := press(s, "enter"); at.screen != screenDetail || at.detail.subject.object.job.UID != rows[0].UID || at.detail.partial {
			t.Errorf("screen %d shows %q", at.screen, at.detail.subject.object.job.UID)
		}
		at := settle(t, press(s, "down", "down", "down", "enter"), src)
		if j := *at.detail.subject.object.job; at.screen != screenDetail || j.UID != "ill-1" || len(j.Errors) != 1 {
			t.Errorf("screen %d shows %+v", at.screen, j)
		}
		if at = press(at, "esc"); at.screen != screenRepo || at.repo.page.rows.cursor != "ill-1" {
			t.Errorf("esc: screen %d, cursor %q", at.screen, at.repo.page.rows.cursor)
		}
		if end := press(s, "end", "down"); end.repo.page.rows.cursor != rows[len(rows)-1].UID {
			t.Errorf("the end: %q", end.repo.page.rows.cursor)
		}
	})
	t.Run("from the history its tab is that of the history, and only its record is left", func(t *testing.T) {
		past := &archive{rows: failedRows(1)}
		at := settle(t, press(settle(t, press(s, "4"), past), "enter"), past)
		if f := frame(at); at.tab() != screenHistory || !strings.Contains(f, "[4 History]") || noLog(*at.detail.subject.object.job) != recordOnly {
			t.Errorf("screen %d:\n%s", at.screen, f)
		}
		if at = press(at, "2", "enter"); at.tab() != screenJobs {
			t.Errorf("from the jobs: %d", at.tab())
		}
	})
	t.Run("it is read again when jobs have ended, and after a minute", func(t *testing.T) {
		look := func(after time.Duration, ended int) bool {
			at := s
			snap := testSnapshot()
			snap.Agent.History += ended
			at = at.Show(snap)
			at.Now = at.Now.Add(after)
			_, look := at.Fetch()
			return look != nil
		}
		for _, tt := range []struct {
			after time.Duration
			ended int
			want  bool
		}{{recentMinAge - 1, 1, false}, {recentMinAge, 1, true}, {recentMinAge, 0, false}, {recentMaxAge, 0, true}} {
			if got := look(tt.after, tt.ended); got != tt.want {
				t.Errorf("after %v and %d jobs: %t", tt.after, tt.ended, got)
			}
		}
		waiting, _ := press(s, "esc", "up", "enter").Fetch()
		if _, again := waiting.Fetch(); again != nil {
			t.Error("two ask at once")
		}
	})
	t.Run("a job that has just ended is listed once", func(t *testing.T) {
		snap := testSnapshot()
		snap.Jobs[6].UID = "ill-0"
		if n := len(s.Show(snap).repo.page.rows.rows); n != 2+6 {
			t.Errorf("%d jobs", n)
		}
	})
	t.Run("another repository does not show the jobs of this one", func(t *testing.T) {
		other := press(s, "esc", "down", "enter")
		if f := frame(other); len(other.repo.page.rows.rows) != 2 || strings.Contains(f, "failed") {
			t.Errorf("%d jobs:\n%s", len(other.repo.page.rows.rows), f)
		}
	})
}
