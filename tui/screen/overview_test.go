package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// TestPreviewFollowsTheCursor: the object under the cursor of either list is shown beside them.
func TestPreviewFollowsTheCursor(t *testing.T) {
	t.Parallel()
	caps := widget.Caps{Mono: true, ASCII: true}
	beside := func(s State) string { // the right part of the upper half
		var out []string
		for _, l := range strings.Split(render(s, 140, 40, caps), "\n")[2:20] {
			out = append(out, l[len(l)-previewWidth:])
		}
		return strings.Join(out, "\n")
	}
	s := shown(testSnapshot(), caps)
	for _, step := range []struct {
		keys []string
		want []string
	}{
		{nil, []string{"team-dash-sync", "> working ", "71%", "205/288   0:42   ~17s left", "held by this agent, renews in", "attempt 1 of 3",
			"main @ a1b2c3d -> 4e55f01", "Dashboard       14     3     0     1", "schemaVersion: want int"}},
		{[]string{"down"}, []string{"infra-alerts-sync", "22%", "4/18"}},
		{[]string{"end"}, []string{"lab-east-sync", "x error", "x 401 bad credentials"}},
		{[]string{"tab"}, []string{"infra-alerts", "healthy"}},
		{[]string{"tab", "down"}, []string{"lab-east", "failing for 3h", "39s ago: 401 bad"}},
	} {
		got := beside(press(s, step.keys...))
		for _, want := range step.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q: no word of %q in\n%s", step.keys, want, got)
			}
		}
	}
	if got := beside(press(s, "/", "z", "z", "q")); !strings.Contains(got, "The job under the cursor") {
		t.Errorf("without a job:\n%s", got)
	}
}

// TestFailingFor: the duration of a failing health check is shown only when it is known.
func TestFailingFor(t *testing.T) {
	t.Parallel()
	since := noon.Add(-185 * time.Minute)
	for _, tt := range []struct {
		repo snapshot.Repo
		want string
	}{
		{snapshot.Repo{Checked: noon, Conditions: []snapshot.Condition{{Type: "Ready", Status: "False", Since: since}}}, "failing 3h"},
		{snapshot.Repo{Checked: noon, Conditions: []snapshot.Condition{{Type: "Ready", Status: "False"}}}, "failing"},
		{snapshot.Repo{Checked: noon, Conditions: []snapshot.Condition{{Type: "SyncStatus", Status: "False", Since: since}}}, "failing"},
		{snapshot.Repo{Checked: noon, Conditions: []snapshot.Condition{{Type: "Ready", Status: "True", Since: since}}}, "failing"},
		{snapshot.Repo{Checked: noon, Healthy: true, Conditions: []snapshot.Condition{{Type: "Ready", Status: "False", Since: since}}},
			"healthy"},
		{snapshot.Repo{}, "unchecked"},
	} {
		if got := failingText(tt.repo, noon); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.repo, got, tt.want)
		}
	}
}

// TestUnknownFiguresAreLeftOut: an older daemon does not send all figures.
func TestUnknownFiguresAreLeftOut(t *testing.T) {
	t.Parallel()
	frame := func(a snapshot.Agent) string {
		snap := testSnapshot()
		snap.Agent = a
		s := shown(snap, widget.Caps{Mono: true, ASCII: true})
		return render(s, 140, 40, s.Caps)
	}
	a := testSnapshot().Agent
	for _, want := range []string{"cpu 0.4%   rss 38 MiB", "41,288 jobs, kept 7d"} {
		if got := frame(a); !strings.Contains(got, want) {
			t.Errorf("no word of %q in\n%s", want, got)
		}
	}
	a.CPU = 0.05
	if got := frame(a); !strings.Contains(got, "cpu <0.1%") {
		t.Errorf("a little:\n%s", got)
	}
	a.CPU, a.HistoryKept = 0, 0
	if got := frame(a); strings.Contains(got, "cpu") || strings.Contains(got, "kept 0") || strings.Contains(got, "jobs,") {
		t.Errorf("made up:\n%s", got)
	}
}

// TestTimesOfAJob: each known time is shown; the estimated end only while there is a pace.
func TestTimesOfAJob(t *testing.T) {
	t.Parallel()
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	for name, tt := range map[string]struct {
		job  snapshot.Job
		want string
	}{
		"unknown": {snapshot.Job{State: "pending"}, ""},
		"pending": {snapshot.Job{State: "pending", Created: at(time.Minute)}, "queued 14:01:37Z, 1m ago"},
		"rests": {snapshot.Job{State: "pending", Created: at(time.Minute), RetryAt: at(-20 * time.Second)},
			"queued 14:01:37Z, 1m ago|again 14:02:57Z, in 20s"},
		"works": {snapshot.Job{State: "working", Owner: "this", Created: at(50 * time.Second), Started: at(40 * time.Second), Done: 2,
			Total: 3}, "queued 14:01:47Z, 50s ago|started 14:01:57Z, after 10s|ends about 14:02:57Z at this pace"},
		"no pace": {snapshot.Job{State: "working", Owner: "this", Started: at(40 * time.Second)}, "started 14:01:57Z"},
		"unsent": {snapshot.Job{State: "success", Started: at(40 * time.Second), Undelivered: at(30 * time.Second)},
			"started 14:01:57Z|done 14:02:07Z, 30s ago"},
		"ended": {snapshot.Job{State: "error", Created: at(40 * time.Second), Started: at(40 * time.Second),
			Finished: at(39 * time.Second)}, "queued 14:01:57Z, 40s ago|started 14:01:57Z, after 0s|ended 14:01:58Z, after 1.0s"},
		"clocks": {snapshot.Job{State: "working", Created: at(time.Second), Started: at(9 * time.Second)},
			"queued 14:02:36Z, 1s ago|started 14:02:28Z"},
	} {
		s := shown(testSnapshot(), widget.Caps{})
		p := view{Canvas: widget.NewCanvas(0, 0, widget.Caps{}), s: &s}
		var got []string
		for _, f := range p.times(tt.job) {
			got = append(got, strings.Join(strings.Fields(f.Text), " "))
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestCursorStaysFromNarrowToWide: the row of the cursor is visible and the same at each size of
// the overview.
func TestCursorStaysFromNarrowToWide(t *testing.T) {
	t.Parallel()
	many := testSnapshot()
	for i := range 60 {
		many.Jobs = append(many.Jobs, snapshot.Job{UID: fmt.Sprint("u", i), Name: fmt.Sprintf("j%03d", i), State: "pending", Created: noon})
		many.Repos = append(many.Repos, snapshot.Repo{Namespace: "default", Name: fmt.Sprintf("r%03d", i)})
	}
	caps := widget.Caps{Mono: true, ASCII: true}
	start := shown(many, caps)
	for _, keys := range [][]string{{"end", "up", "up"}, {"pgdown", "pgdown"}, {"tab", "end", "up"}, {"tab", "pgdown", "pgdown", "up"},
		{"2", "end"}, {"3", "pgdown", "pgdown"}} {
		s := press(start, keys...)
		label := s.jobs.cursor[1:]
		want := fmt.Sprintf("j%03s", label)
		if s.overview.onRepos {
			want = strings.TrimPrefix(s.repos.cursor, "default/")
		}
		for w := 76; w <= 144; w++ {
			for _, h := range []int{16, 20, 24, 29, 30, 35, 40} {
				frame := render(s, w, h, caps)
				found := false
				for _, l := range strings.Split(frame, "\n") {
					if displaywidth.String(l) != w {
						t.Fatalf("%q at %dx%d: %q", keys, w, h, l)
					}
					if _, after, ok := strings.Cut(l, "|> "); ok && strings.Contains(after[:min(12, len(after))], want) {
						found = true
					}
				}
				if !found {
					t.Fatalf("%q at %dx%d: the row of %s is not seen:\n%s", keys, w, h, want, frame)
				}
			}
		}
	}
}

// TestCrowdedLines: lines without room use a shorter text before they omit it.
func TestCrowdedLines(t *testing.T) {
	t.Parallel()
	caps := widget.Caps{Mono: true, ASCII: true}
	line := func(s State, y int) string { return strings.Split(render(s, 80, 24, caps), "\n")[y] }

	snap := testSnapshot()
	snap.API.Insecure = true
	snap.Agent.Version, snap.Agent.Host = "7ff207c", "vm"
	s := shown(snap, caps)
	s.Source = "attached to daemon 26810"
	if head := line(s, 0); !strings.Contains(head, "  daemon 26810") || strings.Contains(head, "attached") {
		t.Errorf("owner of the snapshot: %q", head)
	}
	snap.API.Insecure = false
	s = shown(snap, caps)
	s.Source = "attached to daemon 26810"
	if head := line(s, 0); !strings.Contains(head, "attached to daemon 26810") {
		t.Errorf("owner of the snapshot, with room: %q", head)
	}

	snap = testSnapshot()
	snap.Counts, snap.Jobs = snapshot.Counts{}, nil
	for i := range 1000 {
		snap.Sources = append(snap.Sources, snapshot.Source{UID: fmt.Sprint("s", i), Namespace: "default",
			Name: fmt.Sprintf("src-%04d", i), State: "ready"})
	}
	for _, press1 := range []string{"1", "6"} {
		if tabs := line(press(shown(snap, caps), press1), 1); !strings.Contains(tabs, "6 Sources 1,000") ||
			!strings.Contains(tabs, "4 History") || len(strings.TrimRight(tabs, " ")) > 80 {
			t.Errorf("tabs after %s: %q", press1, tabs)
		}
	}
}

// TestTrueConditionsAreDroppedFirst: a box with room for "more lines" only is left to the jobs;
// failing conditions are still shown.
func TestTrueConditionsAreDroppedFirst(t *testing.T) {
	t.Parallel()
	caps := widget.Caps{Mono: true, ASCII: true}
	snap := testSnapshot()
	for i := range snap.Repos {
		for j := range 10 {
			snap.Repos[i].Conditions = append(snap.Repos[i].Conditions,
				snapshot.Condition{Type: fmt.Sprint("NamespaceQuota", j), Status: "True", Reason: "QuotaUnlimited"})
		}
	}
	frame := render(press(shown(snap, caps), "3", "enter"), 80, 24, caps)
	if strings.Contains(frame, "Conditions") {
		t.Errorf("a box of no use:\n%s", frame)
	}
	for i := range snap.Repos {
		snap.Repos[i].Conditions[1] = snapshot.Condition{Type: "SyncStatus", Status: "False", Reason: "SyncFailed",
			Message: strings.Repeat("why ", 40)}
	}
	if frame = render(press(shown(snap, caps), "3", "enter"), 80, 24, caps); !strings.Contains(frame, "SyncFailed: why") {
		t.Errorf("what is not met is not said:\n%s", frame)
	}
}

// TestEmptyLists: an empty list shows the reason, and no key that does not apply.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	caps := widget.Caps{Mono: true, ASCII: true}
	snap := testSnapshot()
	snap.Jobs, snap.Repos, snap.Counts = nil, nil, snapshot.Counts{}
	for key, want := range map[string]string{
		"2": "No jobs. A job is about a repository, and there is none yet.",
		"4": "No job has ended here yet. A job is about a repository, and there is none yet.",
	} {
		frame := render(settle(t, press(shown(snap, caps), key), &archive{}), 120, 30, caps)
		if !strings.Contains(frame, want) || strings.Contains(frame, "p on a repository") {
			t.Errorf("want %q:\n%s", want, frame)
		}
	}
	if frame := render(press(shown(snap, caps), "3"), 80, 24, caps); strings.Contains(frame, "0 in order") {
		t.Errorf("none of no repositories is in order:\n%s", frame)
	}
}

// TestNoJobsOffline: while the API is unavailable, the time of the next pull is unknown.
func TestNoJobsOffline(t *testing.T) {
	t.Parallel()
	caps := widget.Caps{Mono: true, ASCII: true}
	snap := testSnapshot()
	snap.Jobs = nil
	snap.Repos[0].Next = noon.Add(time.Minute)
	if frame := render(press(shown(snap, caps), "2"), 120, 30, caps); !strings.Contains(frame, " Next pull in ") {
		t.Fatalf("online:\n%s", frame)
	}
	snap.API.Up = false
	if frame := render(press(shown(snap, caps), "2"), 120, 30, caps); strings.Contains(frame, " Next pull in ") ||
		!strings.Contains(frame, "No jobs.") {
		t.Errorf("offline:\n%s", frame)
	}
}

// TestNoJobsFailing: failing and suspended repositories announce no pull.
func TestNoJobsFailing(t *testing.T) {
	t.Parallel()
	caps := widget.Caps{Mono: true, ASCII: true}
	snap := testSnapshot()
	snap.Jobs = nil
	for i := range snap.Repos {
		r := &snap.Repos[i]
		r.Enabled, r.Healthy, r.Checked, r.Suspended, r.Next = true, false, noon, false, noon.Add(time.Duration(i+1)*time.Minute)
	}
	says := func(want string) {
		t.Helper()
		if frame := render(press(shown(snap, caps), "2"), 140, 30, caps); !strings.Contains(frame, want) {
			t.Errorf("no word of %q in\n%s", want, frame)
		}
	}
	says("None is pulled while it fails; the next look is in 1m: " + snap.Repos[0].Name)
	snap.Repos[2].Healthy = true
	says("Next pull in 3m: " + snap.Repos[2].Name)
	snap.Repos[3].Healthy, snap.Repos[2].Suspended = true, true
	says("Next pull in 4m: " + snap.Repos[3].Name)
}

// apiUnavailable returns a state whose API has been unavailable for six minutes.
func apiUnavailable() State {
	snap := testSnapshot()
	snap.API.Up, snap.API.Error, snap.API.Since = false, "dial tcp 10.0.3.7:443: i/o timeout", noon.Add(-372*time.Second)
	snap.API.Next, snap.API.Tries = noon.Add(10500*time.Millisecond), 7
	return shown(snap, widget.Caps{Mono: true, ASCII: true})
}

// TestBannerCountsDown: the remaining time is shown in full at each width.
func TestBannerCountsDown(t *testing.T) {
	t.Parallel()
	s := apiUnavailable()
	line := func(s State, w, at int) string {
		return strings.TrimRight(strings.Split(render(s, w, 24, s.Caps), "\n")[at], " ")
	}
	for _, tt := range []struct {
		w     int
		later time.Duration
		want  string
	}{
		{80, 0, " ! OFFLINE for 6m, shown as of 13:56:25Z. Next try in 11s, R now"},
		{80, 2 * time.Second, " ! OFFLINE for 6m, shown as of 13:56:25Z. Next try in 9s, R now"},
		{80, 10 * time.Second, " ! OFFLINE for 6m, shown as of 13:56:25Z. Next try in 1s, R now"},
		{80, 11 * time.Second, " ! OFFLINE for 6m, shown as of 13:56:25Z. Trying now"},
		{70, 0, " ! OFFLINE for 6m, shown as of 13:56:25Z. Next try in 11s, R now"},
		{40, 0, " ! OFFLINE for~. Next try in 11s, R now"},
	} {
		at := s
		at.Now = noon.Add(tt.later)
		if got := line(at, tt.w, 1); got != tt.want {
			t.Errorf("%d cells, %s later: %q, want %q", tt.w, tt.later, got, tt.want)
		}
	}
	for w := MinWidth; w < 160; w++ {
		if got := line(s, w, 1); !strings.HasPrefix(got, " ! OFFLINE") || !strings.HasSuffix(got, "Next try in 11s, R now") {
			t.Errorf("%d cells: %q", w, got)
		}
	}
	s.issues.markRead(len(s.issues.list))
	if got := line(s, 80, 22); got != " x dial tcp 10.0.3.7:443: i/o timeout, 7 tries; nothing is queued" {
		t.Errorf("the reason: %q", got)
	}
	if got := line(s, 80, 23); !strings.Contains(got, "R try now") || !strings.Contains(got, "D doctor") || strings.Contains(got, "p pull") {
		t.Errorf("the keys: %q", got)
	}
	old := apiUnavailable()
	old.Snap.API.Next, old.Snap.API.Tries = time.Time{}, 0
	if got := line(old, 80, 1); got != " ! OFFLINE for 6m, shown as of 13:56:25Z" {
		t.Errorf("of an older daemon: %q", got)
	}
	lost := shown(testSnapshot(), widget.Caps{Mono: true, ASCII: true}).Lose("connection refused")
	if lost.Again = noon.Add(3 * time.Second); !strings.HasSuffix(line(lost, 80, 1), "14:02:37Z, 0s ago. Next try in 3s, R now") {
		t.Errorf("without a daemon: %q", line(lost, 80, 1))
	}
	lost.Source = FromDisk
	if got := line(lost, 140, 1); strings.Contains(got, "try") {
		t.Errorf("from disk: %q", got)
	}
}

// TestRetryNow: R retries an unavailable source, and through it an unavailable API. It sends no
// action to an available API or when read-only.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	hurry := []Action{{Verb: Hurry}}
	readOnly, disk, gone := apiUnavailable(), apiUnavailable(), apiUnavailable().Lose("no daemon")
	readOnly.ReadOnly, disk.Source = true, FromDisk
	for name, tt := range map[string]struct {
		s    State
		want []Action
	}{"away": {apiUnavailable(), hurry}, "up": {shown(testSnapshot(), widget.Caps{}), nil}, "read-only": {readOnly, nil},
		"disk": {disk, nil}, "no daemon": {gone, nil}, "nothing yet": {NewState(Standalone, widget.Caps{}, noon), nil}} {
		if _, out := tt.s.Key("R", "R"); !out.Refresh || !slices.Equal(out.Actions, tt.want) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestReadOnlyDashboard: a read-only dashboard sends no actions and shows why; a file is shown as the
// data of no running agent.
func TestReadOnlyDashboard(t *testing.T) {
	t.Parallel()
	looks := shown(testSnapshot(), widget.Caps{ASCII: true, Mono: true})
	looks.ReadOnly = true
	left := testSnapshot()
	left.AsOf = noon.Add(-6 * time.Minute)
	disk := shown(left, widget.Caps{ASCII: true, Mono: true})
	disk.Source = FromDisk
	for why, s := range map[string]State{"--read-only: nothing is sent": looks, "no agent works on this file": disk} {
		for _, keys := range [][]string{{"p"}, {"P", "y"}, {"x", "y"}, {"r", "y"}, {"3", "s", "y"}} {
			now := s
			for _, k := range keys {
				var out Outcome
				if now, out = now.Key(k, k); len(out.Actions) > 0 {
					t.Errorf("%s: %v asks for %+v", why, keys, out.Actions)
				}
			}
		}
		now, _ := s.Key("p", "p")
		if got := render(now, 80, 24, now.Caps); !strings.Contains(got, why) || strings.Contains(got, "p pull  ") {
			t.Errorf("want %q and no hints to act:\n%s", why, got)
		}
	}
	if got := render(disk, 120, 24, disk.Caps); !strings.Contains(got, "No agent works on this file; shown as of") ||
		!strings.Contains(got, "no agent") || !strings.Contains(got, FromDisk) {
		t.Errorf("%s", got)
	}
}

// TestNoteOfTheSource: the note of the source is shown when the status line is free.
func TestNoteOfTheSource(t *testing.T) {
	t.Parallel()
	quiet := testSnapshot()
	quiet.Events, quiet.Repos[1].Healthy = nil, true
	s := shown(quiet, widget.Caps{ASCII: true, Mono: true})
	s.Note = "daemon 0.9, this 1.0: reduced view"
	if got := render(s, 80, 24, s.Caps); !strings.Contains(got, "! daemon 0.9, this 1.0: reduced view") {
		t.Errorf("%s", got)
	}
	quiet.Problem = "the token is refused"
	s = s.Show(quiet)
	if got := render(s, 80, 24, s.Caps); strings.Contains(got, "reduced view") || !strings.Contains(got, "the token is refused") {
		t.Errorf("%s", got)
	}
}
