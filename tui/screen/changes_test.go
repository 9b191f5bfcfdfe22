package screen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/widget"
)

// changed returns the Git changes of the first job of the test snapshot.
func changed() snapshot.Comparison {
	lines := []snapshot.TextLine{{Op: "@", Text: "@@ -1,9 +1,9 @@"}, {Op: " ", Text: "{"}}
	for i := range 5 {
		lines = append(lines, snapshot.TextLine{Op: " ", Text: fmt.Sprintf("  \"line%d\": %d,", i, i)})
	}
	lines = append(lines, snapshot.TextLine{Op: "-", Text: "  \"schemaVersion\": 38,"},
		snapshot.TextLine{Op: "+", Text: "  \"schemaVersion\": \"39\","})
	for i := range 10 {
		lines = append(lines, snapshot.TextLine{Op: " ", Text: fmt.Sprintf("  \"more%d\": %d,", i, i)})
	}
	lines = append(lines, snapshot.TextLine{Op: "@", Text: "@@ -90,8 +90,8 @@"},
		snapshot.TextLine{Op: "-", Text: "  \"title\": \"BGP\""},
		snapshot.TextLine{Op: "+", Text: "  \"title\": \"BGP of all the sites, " +
			strings.Repeat("with a description that goes on, ", 4) + "to its end\""})
	for i := range 20 {
		lines = append(lines, snapshot.TextLine{Op: " ", Text: fmt.Sprintf("  \"last%d\": %d,", i, i)})
	}
	return snapshot.Comparison{All: 4, Files: []snapshot.FileChange{
		{Type: "deleted", Path: "dashboards/net/a-board-that-nobody-wants.json"}, {Type: "modified", Path: "dashboards/net/bgp.json"},
		{Type: "added", Path: "dashboards/net/edge.json"}, {Type: "renamed", Path: "dashboards/net/core.json", From: "dashboards/core.json"},
	}, Text: &snapshot.TextChange{Form: "as JSON, keys sorted", Added: 2, Deleted: 2, Lines: lines, More: 12}}
}

func TestChangesOfAJob(t *testing.T) {
	t.Parallel()
	src := &archive{rows: failedRows(3), comparison: changed()}
	s := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), "enter", "d"), src)
	frame := func(s State) string { return render(s, 100, 30, s.Caps) }
	want := snapshot.CompareQuery{Namespace: "default", Repository: "team-dash", From: strings.Repeat("a1b2c3d4", 5),
		To: strings.Repeat("4e55f01a", 5)}
	if len(src.compared) != 1 || src.compared[0] != want {
		t.Fatalf("asked %+v", src.compared)
	}
	file := settle(t, press(s, "down", "enter"), src)
	t.Run("the list says what happened to each", func(t *testing.T) {
		for _, want := range []string{"- deleted  dashboards/net/a-board", "~ modified dashboards/net/bgp.json",
			"+ added    dashboards/net/edge.json", "> renamed  dashboards/core.json -> dashboards/net/core.json", "a1b2c3d -> 4e55f01", "1 of 4"} {
			if !strings.Contains(frame(s), want) {
				t.Errorf("no word of %q in\n%s", want, frame(s))
			}
		}
	})
	t.Run("enter shows one old against new, esc leads back to it", func(t *testing.T) {
		want.Path = "dashboards/net/bgp.json"
		if got := src.compared[len(src.compared)-1]; file.screen != screenDiff || got != want {
			t.Fatalf("screen %d asked %+v", file.screen, got)
		}
		for _, want := range []string{"as JSON, keys sorted, a1b2c3d -> 4e55f01", "-  \"schemaVersion\": 38,",
			"+  \"schemaVersion\": \"39\",", "+2 -2 lines", "@@ -1,9 +1,9 @@"} {
			if !strings.Contains(frame(file), want) {
				t.Errorf("no word of %q in\n%s", want, frame(file))
			}
		}
		back := press(file, "esc")
		if back.screen != screenChanges || back.changes.rows.cursor != want.Path {
			t.Errorf("screen %d, cursor %q", back.screen, back.changes.rows.cursor)
		}
		if _, look := back.Fetch(); look != nil {
			t.Error("what is known is looked up again")
		}
		if forth := press(back, "]"); forth.screen != screenDiff || forth.path != want.Path {
			t.Errorf("]: screen %d shows %q", forth.screen, forth.path)
		}
	})
	t.Run("it scrolls to its end and no further, and from change to change", func(t *testing.T) {
		drawn(&file)
		end := press(file, "end")
		if f := render(end, 80, 24, end.Caps); !strings.Contains(f, "12 more lines are not shown") {
			t.Errorf("the end:\n%s", f)
		}
		if up := press(end, "down", "down", "up"); up.diff.top != end.diff.top-1 {
			t.Errorf("one up from %d leads to %d", end.diff.top, up.diff.top)
		}
		next := press(file, "n")
		if f := render(next, 80, 24, next.Caps); next.diff.top != 20 || !strings.Contains(strings.Split(f, "\n")[3], "@@ -90,8") {
			t.Errorf("n scrolls to %d:\n%s", next.diff.top, f)
		}
		if first := press(next, "N"); first.diff.top != 1 {
			t.Errorf("N scrolls to %d", first.diff.top)
		}
		if none := press(next, "n"); none.toast == "" || none.diff.top != next.diff.top {
			t.Errorf("there is no third: %d %q", none.diff.top, none.toast)
		}
	})
	t.Run("w shows long lines whole", func(t *testing.T) {
		at := press(file, "n")
		if strings.Contains(render(at, 80, 24, at.Caps), "to its end") {
			t.Error("the line fits")
		}
		if at = press(at, "w", "n"); !strings.Contains(render(at, 80, 24, at.Caps), "to its end\"") {
			t.Errorf("it is not wrapped:\n%s", render(at, 80, 24, at.Caps))
		}
	})
	t.Run("words find lines, and files", func(t *testing.T) {
		found := press(file, "/", "s", "c", "h", "e", "m", "a", "enter")
		if f := frame(found); len(found.diff.matches(&found.scene)) != 2 || !strings.Contains(f, `"schema": 2 of 42 lines`) {
			t.Errorf("%d lines:\n%s", len(found.diff.matches(&found.scene)), f)
		}
		if n := len(found.jobs.rows); n != len(testSnapshot().Jobs) {
			t.Errorf("the words of a file narrow the jobs to %d", n)
		}
		if again := press(found, "esc"); again.screen != screenDiff || again.filter() != "" {
			t.Errorf("esc leaves %q on screen %d", again.filter(), again.screen)
		}
		if rows := press(s, "/", "c", "o", "r", "e").changes.rows.rows; len(rows) != 1 || rows[0].Type != "renamed" {
			t.Errorf("%+v", rows)
		}
		if f := frame(press(s, "/", "z", "z")); !strings.Contains(f, `None of 4 files matches "zz"`) {
			t.Errorf("no match:\n%s", f)
		}
	})
	t.Run("no key acts on what is not shown", func(t *testing.T) {
		for _, key := range []string{"r", "x", "p", "P", "s"} {
			for _, at := range []State{s, file} {
				if got, out := at.Key(key, key); len(out.Actions) > 0 || open(got) {
					t.Errorf("%s acts", key)
				}
			}
		}
	})
	t.Run("a fault is said, and asked again on demand", func(t *testing.T) {
		bad := &archive{err: errors.New("the mirror\x1b[2J does not have both commits")}
		at := settle(t, press(shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}), "enter", "d"), bad)
		if f := frame(at); !strings.Contains(f, "the mirror[2J does not have") || len(bad.compared) != 1 {
			t.Errorf("asked %d times:\n%s", len(bad.compared), f)
		}
		if at = settle(t, press(at, "enter"), src); len(at.changes.rows.rows) != 4 || at.screen != screenChanges {
			t.Errorf("screen %d, %d files", at.screen, len(at.changes.rows.rows))
		}
		at = settle(t, press(at, "enter"), bad)
		if f := frame(at); !strings.Contains(f, "Changes are not available") {
			t.Errorf("the file:\n%s", f)
		}
		if at = settle(t, press(at, "enter"), src); len(at.diff.matches(&at.scene)) != 42 {
			t.Errorf("after enter: %d lines", len(at.diff.matches(&at.scene)))
		}
	})
	t.Run("an answer that comes late is not shown", func(t *testing.T) {
		first, look := press(s, "enter").Fetch()
		second, other := press(first, "esc", "down", "enter").Fetch()
		if look == nil || other == nil {
			t.Fatal("nothing is looked up")
		}
		second = look(t.Context(), src)(second)
		if _, known, _ := second.diff.shown(&second.scene); known || second.diff.file.request == nil {
			t.Error("the file before is shown")
		}
		second = other(t.Context(), src)(second)
		if _, known, _ := second.diff.shown(&second.scene); !known {
			t.Errorf("%q is shown", second.diff.file.key.Path)
		}
	})
	t.Run("a lookup that is ended is done again", func(t *testing.T) {
		at := press(shown(testSnapshot(), widget.Caps{}), "enter", "d")
		at, look := at.Fetch()
		at = look(t.Context(), &archive{err: fmt.Errorf("ask: %w", context.Canceled)})(at)
		if at = settle(t, at, src); len(at.changes.rows.rows) != 4 {
			t.Errorf("%d files", len(at.changes.rows.rows))
		}
	})
}

// TestChangesThatCannotBeShown: the key shows the reason and starts no lookup.
func TestChangesThatCannotBeShown(t *testing.T) {
	t.Parallel()
	src := &archive{comparison: changed()}
	for want, change := range map[string]func(*snapshot.Job){
		"has not come to a commit yet": func(j *snapshot.Job) { j.RefFrom, j.RefTo = "", "" },
		"names no commit":              func(j *snapshot.Job) { j.RefTo, j.Finished = "", noon },
		"nothing has changed in Git":   func(j *snapshot.Job) { j.RefFrom = j.RefTo },
	} {
		snap := testSnapshot()
		change(&snap.Jobs[0])
		for _, key := range []string{"d", "enter"} {
			s := settle(t, press(shown(snap, widget.Caps{}), "enter", key), src)
			if s.screen != screenDetail || !strings.Contains(s.toast, want) {
				t.Errorf("%s: screen %d says %q, want %q", key, s.screen, s.toast, want)
			}
		}
	}
	if len(src.compared) > 0 {
		t.Errorf("asked %+v", src.compared)
	}
	t.Run("of a row of the history the record comes first", func(t *testing.T) {
		past := failedRows(1)
		past[0].RefTo = strings.Repeat("b", 40)
		src := &archive{rows: past, comparison: changed()}
		s := settle(t, press(shown(testSnapshot(), widget.Caps{}), "4"), src)
		s = press(s, "enter", "d")
		if s.screen != screenChanges {
			t.Fatalf("screen %d says %q", s.screen, s.toast)
		}
		s = settle(t, s, src)
		if s.detail.partial || len(src.compared) != 1 {
			t.Errorf("the record is not read, or asked %+v", src.compared)
		}
	})
	t.Run("and without it nothing is asked", func(t *testing.T) {
		past := failedRows(1)
		past[0].RefTo = strings.Repeat("b", 40)
		src := &archive{rows: past}
		s := settle(t, press(shown(testSnapshot(), widget.Caps{}), "4"), src)
		src.err = nil
		src.rows = nil // pruned meanwhile
		s = settle(t, press(s, "enter", "d"), src)
		if f := render(s, 100, 30, s.Caps); len(src.compared) > 0 || !strings.Contains(f, "cannot be read") {
			t.Errorf("asked %+v:\n%s", src.compared, f)
		}
	})
	t.Run("a job that nothing was there before", func(t *testing.T) {
		snap := testSnapshot()
		snap.Jobs[0].RefFrom = ""
		src := &archive{comparison: changed()}
		if settle(t, press(shown(snap, widget.Caps{}), "enter", "d"), src); len(src.compared) != 1 || src.compared[0].From != "" {
			t.Errorf("asked %+v", src.compared)
		}
	})
}

// TestComparisonIsCleaned: foreign paths and lines from Git are cleaned; a tab keeps its width.
func TestComparisonIsCleaned(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b[31m\u202eb\x07"
	want := text.Clean(evil)
	in := snapshot.Comparison{Files: []snapshot.FileChange{{Type: evil, Path: evil, From: evil}},
		Text: &snapshot.TextChange{Form: evil, Lines: []snapshot.TextLine{{Op: evil, Text: "\t" + evil}}}}
	s := NewState(Standalone, widget.Caps{}, noon)
	s.detail.subject.object = jobObject(&snapshot.Job{UID: "1", RefTo: "b"})
	src := &archive{comparison: in}
	look := comparisonOf(&s).fetch(&s.scene, &s.changes.files, "a.json")
	s.changes.files.take(look(t.Context(), src))
	got := s.changes.files.value
	if got.Files[0] != (snapshot.FileChange{Type: want, Path: want, From: want}) || got.Text.Form != want ||
		got.Text.Lines[0] != (snapshot.TextLine{Op: want, Text: "    " + want}) {
		t.Errorf("%q and %q", fmt.Sprint(got.Files), fmt.Sprint(*got.Text))
	}
	if in.Files[0].Path != evil || in.Text.Lines[0].Text != "\t"+evil {
		t.Error("the answer itself was changed")
	}
}

// testSnapshot returns the snapshot that the screens of the documentation show.
func testSnapshot() *snapshot.Snapshot {
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	return &snapshot.Snapshot{
		Seq: 7, At: noon,
		Agent: snapshot.Agent{Host: "edge-07", PID: 4121, Version: "1.0.0", Started: at(50 * time.Hour), Drivers: 4, Claims: 3,
			StorePath: "/var/lib/limpet/limpet.db", StoreSize: 61 << 20, History: 41288, RSS: 38 << 20, CPU: 0.4, HistoryKept: 168 * time.Hour,
			Namespace: "stacks-1234"},
		API: snapshot.API{Server: "https://grafana.example:6446", Up: true, Synced: true, Latency: 38 * time.Millisecond, Since: at(time.Hour)},
		Jobs: []snapshot.Job{
			{UID: "5c1e9c54", Namespace: "default", Name: "team-dash-sync", Repository: "team-dash", Action: "pull", Detail: "full",
				State: "working", Message: "replicating dashboards/network", Progress: 71, Done: 205, Total: 288, Created: at(50 * time.Second),
				Started: at(42 * time.Second), Owner: "this", LeaseUntil: noon.Add(18 * time.Second), RenewAt: noon.Add(8 * time.Second),
				Attempt: 1, MaxAttempt: 3, Branch: "main", RefFrom: strings.Repeat("a1b2c3d4", 5), RefTo: strings.Repeat("4e55f01a", 5),
				Summary: []snapshot.Summary{{Kind: "Folder", Total: 12, Update: 1, Noop: 11},
					{Kind: "Dashboard", Total: 276, Create: 14, Update: 3, Noop: 174, Warn: 1, Error: 1}},
				Errors:   []string{"dashboards/net/bgp.json: invalid schemaVersion: want int, got \"39\""},
				Warnings: []string{"dashboards/net/old.json: folder has no _folder.json, title from path"},
				Commit:   &snapshot.Commit{Subject: "bgp: add peers panel", Author: "M. Ito", At: at(3 * time.Minute)},
				Steps: []snapshot.Step{{Text: "look up branch:main", At: at(42 * time.Second), Took: 300 * time.Millisecond},
					{Text: "fetch 4e55f01", At: at(41700 * time.Millisecond), Took: 11300 * time.Millisecond},
					{Text: "compare with the server", At: at(30400 * time.Millisecond), Took: 400 * time.Millisecond},
					{Text: "replicating changes", At: at(30 * time.Second)}},
				Log: []snapshot.Event{{At: at(3 * time.Second), Level: "info", Text: "created dashboards/net/core.json"},
					{At: at(2 * time.Second), Level: "error", Text: "rejected dashboards/net/bgp.json: 422"},
					{At: at(time.Second), Level: "info", Text: "created dashboards/net/edge.json"}}},
			{UID: "9x1ab", Namespace: "default", Name: "infra-alerts-sync", Repository: "infra-alerts", Action: "pull", Detail: "incr",
				State: "working", Progress: 22, Done: 4, Total: 18, Created: at(10 * time.Second), Started: at(9 * time.Second), Owner: "this",
				LeaseUntil: noon.Add(25 * time.Second), Attempt: 1},
			{UID: "q0p4", Namespace: "default", Name: "lab-west-move", Repository: "lab-west", Action: "move", State: "working",
				Message: "34 files", Progress: -1, Created: at(3 * time.Second), Started: at(2 * time.Second), Owner: "this",
				LeaseUntil: noon.Add(29 * time.Second), Attempt: 1},
			{UID: "44dd1", Namespace: "default", Name: "team-dash-pr-481", Repository: "team-dash", Action: "pr", Detail: "#481",
				State: "working", Progress: 98, Created: at(80 * time.Second), Started: at(70 * time.Second), Owner: "other", Attempt: 1},
			{UID: "k2m9", Namespace: "default", Name: "lab-west-push", Repository: "lab-west", Action: "push", State: "pending",
				Created: at(31 * time.Second), Attempt: 1},
			{UID: "z8z8", Namespace: "default", Name: "lab-east-sync", Repository: "lab-east", Action: "pull", Detail: "incr",
				State: "pending", Created: at(30 * time.Second), Attempt: 2},
			{UID: "y7c1", Namespace: "default", Name: "lab-east-sync", Repository: "lab-east", Action: "pull", Detail: "incr",
				State: "error", Message: "401 bad credentials", Created: at(40 * time.Second), Started: at(40 * time.Second),
				Finished: at(39 * time.Second), Owner: "this", Attempt: 3, Errors: []string{"401 bad credentials"}},
		},
		Repos: []snapshot.Repo{
			{UID: "r1", Namespace: "default", Name: "infra-alerts", Title: "Infra", Type: "gitlab", URL: "https://gitlab.example/infra.git",
				Enabled: true, Healthy: true, Checked: at(time.Minute), SyncState: "working", LastRef: strings.Repeat("9c0ffeee", 5),
				Synced: at(5 * time.Minute), Resources: 18, Runs: "....s...s...s...s...w..s"},
			{UID: "r2", Namespace: "default", Name: "lab-east", Title: "Lab East", Type: "git", URL: "https://git.lab/obs/east.git",
				Enabled: true, Checked: at(39 * time.Second), Health: "401 bad credentials", SyncState: "error",
				LastRef: strings.Repeat("5d41aa90", 5), Synced: at(3 * time.Hour), Next: noon.Add(time.Minute), Resources: 288,
				Runs:   "ssssssssssssssssssseeeee",
				Branch: "main", Path: "grafana/", Target: "folder", Interval: time.Minute, Connection: "lab",
				Webhook: &snapshot.Webhook{ID: "4471", LastEvent: at(185 * time.Minute)}, TokenEnds: noon.Add(52 * time.Minute),
				MaxResources: 1000, Contents: []snapshot.Content{{Resource: "folders", Count: 12}, {Resource: "dashboards", Count: 276}},
				Conditions: []snapshot.Condition{{Type: "NamespaceQuota", Status: "True", Reason: "WithinQuota"},
					{Type: "Ready", Status: "False", Since: at(182 * time.Minute), Reason: "AuthenticationFailed",
						Message: "secure.token: the host does not take it; renew the token in the settings of the repository"},
					{Type: "ResourceQuota", Status: "True", Reason: "WithinQuota"}, {Type: "SyncStatus", Status: "True", Reason: "SyncSuccessful"}}},
			{UID: "r3", Namespace: "default", Name: "lab-west", Title: "Lab West", Type: "git", URL: "https://git.lab/obs/west.git",
				Enabled: true, SyncState: "success", LastRef: strings.Repeat("77be2100", 5), Synced: at(9 * time.Minute),
				Next: noon.Add(51 * time.Second), Resources: 301, Runs: "ssssssssssssssssssssssss"},
			{UID: "r4", Namespace: "default", Name: "team-dash", Title: "Team", Type: "github", URL: "https://github.com/acme/dash",
				Enabled: true, Healthy: true, Checked: at(time.Minute), SyncState: "working", LastRef: strings.Repeat("a1b2c3d4", 5),
				Synced: at(42 * time.Second), Branch: "main", Resources: 288, Contents: []snapshot.Content{{Resource: "folders", Count: 12},
					{Resource: "dashboards", Count: 276}}, Runs: "s.s.s.s.s.s.s.s.s.s.s.sw"},
		},
		Events: []snapshot.Event{
			{At: at(9 * time.Second), Level: "info", Job: "infra-alerts-sync", Text: "claimed, attempt 1"},
			{At: at(39 * time.Second), Level: "error", Job: "lab-east-sync", Text: "401 bad credentials"},
		},
	}
}

// jobPhases returns a draining agent with jobs in all phases: an undelivered result, a backoff, a
// dead letter.
func jobPhases() snapshot.Snapshot {
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	s := *testSnapshot()
	s.Agent.Draining, s.Agent.Busy, s.Agent.Claims = at(4*time.Minute), 1, 1
	s.Agent.Controllers = snapshot.Controllers{Mode: "on", State: snapshot.ControllersStandby, Holder: "lab-b_X"}
	s.Jobs = []snapshot.Job{
		{UID: "5c1e9c54", Namespace: "default", Name: "team-dash-sync", Repository: "team-dash", Action: "pull", Detail: "full",
			State: "success", Message: "replicating changes", Progress: 100, Created: at(5 * time.Minute), Started: at(4 * time.Minute),
			Undelivered: at(3 * time.Minute), Owner: "this", Attempt: 1, MaxAttempt: 3},
		{UID: "z8z8", Namespace: "default", Name: "lab-east-sync", Repository: "lab-east", Action: "pull", Detail: "incr",
			State: "pending", Message: "attempt 1 of 3: the git host does not answer; tried again in 20s", Created: at(30 * time.Second),
			RetryAt: noon.Add(18 * time.Second), Attempt: 2, MaxAttempt: 3},
		{UID: "y7c1", Namespace: "default", Name: "lab-west-sync", Repository: "lab-west", Action: "pull", Detail: "incr", State: "dead",
			Message: "the git host does not answer (3 attempts)", Created: at(90 * time.Second), Started: at(40 * time.Second),
			Finished: at(39 * time.Second), Owner: "this", Attempt: 3, MaxAttempt: 3},
	}
	return s
}

// failingSnapshot returns a snapshot with errors, one of them long and one repeated.
func failingSnapshot() *snapshot.Snapshot {
	s := testSnapshot()
	s.Problem = "the clock of this host is 4m12s behind that of the server: nothing is claimed; set it (timedatectl set-ntp true)"
	long := "resolve https://git.example.com/team/a-repository-with-a-long-name.git: the host name is not known here: no " +
		"such host (check the host in the url and the name server); the last commit that could be had is 5d41aa9, of three hours ago"
	s.Events = append(s.Events, snapshot.Event{At: noon.Add(-20 * time.Second), Level: "error", Repo: "lab-east", Text: long},
		snapshot.Event{At: noon.Add(-10 * time.Second), Level: "error", Job: "lab-east-sync", Text: "401 bad credentials"})
	return s
}

func shown(snap *snapshot.Snapshot, caps widget.Caps) State {
	snap.Counts = snapshot.Count(snap.Jobs, snap.At)
	s := NewState("attached to daemon 4121", caps, noon)
	s.Now = noon
	return s.Show(snap)
}

func press(s State, keys ...string) State {
	for _, k := range keys {
		txt := ""
		if len(k) == 1 {
			txt = k
		}
		s, _ = s.Key(k, txt)
		_, pane := s.overlay.(issuesPane)
		_, box := s.overlay.(popup)
		if pane || box || s.overlay == nil && slices.Contains([]screenID{screenDetail, screenDiff, screenRepo}, s.screen) {
			drawn(&s) // their keys depend on what is on the screen
		}
	}
	return s
}

// drawn draws a state on its terminal.
func drawn(s *State) string {
	w, h := screenSize(*s)
	return Render(s, w, h)
}

func screenSize(s State) (w, h int) { return cmp.Or(s.W, 80), cmp.Or(s.H, 24) }

// render draws a state on another terminal.
func render(s State, w, h int, caps widget.Caps) string {
	s.Caps = caps
	return Render(&s, w, h)
}
