package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"

	"limpet/sync/snapshot"
)

// TestSideFollowsTheCursor: what is under the cursor of either list is told beside
// them.
func TestSideFollowsTheCursor(t *testing.T) {
	t.Parallel()
	caps := Caps{Mono: true, ASCII: true}
	beside := func(s State) string { // the right part of the upper half
		var out []string
		for _, l := range strings.Split(Render(s, 140, 40, caps), "\n")[2:20] {
			out = append(out, l[len(l)-previewWidth:])
		}
		return strings.Join(out, "\n")
	}
	s := shown(picture(), caps)
	for _, step := range []struct {
		keys []string
		want []string
	}{
		{nil, []string{"team-dash-sync", "> working  0:42", "71%", "205/288   ~17s left", "lease 18s, renews in 8s", "attempt 1 of 3", "main @ a1b2c3d -> 4e55f01", "Dashboard          14    3    0    1", "schemaVersion: want int"}},
		{[]string{"down"}, []string{"infra-alerts-sync", "22%", "4/18"}},
		{[]string{"end"}, []string{"lab-east-sync", "x error  0:01", "x 401 bad credentials"}},
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

// TestFailingFor: how long a health check fails is told where it is known, and never
// made up.
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
		{snapshot.Repo{Checked: noon, Healthy: true, Conditions: []snapshot.Condition{{Type: "Ready", Status: "False", Since: since}}}, "healthy"},
		{snapshot.Repo{}, "unchecked"},
	} {
		if got := failingText(tt.repo, noon); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.repo, got, tt.want)
		}
	}
}

// TestUnknownFiguresAreLeftOut: an older daemon does not tell all of them.
func TestUnknownFiguresAreLeftOut(t *testing.T) {
	t.Parallel()
	frame := func(a snapshot.Agent) string {
		snap := picture()
		snap.Agent = a
		s := shown(snap, Caps{Mono: true, ASCII: true})
		return Render(s, 140, 40, s.Caps)
	}
	a := picture().Agent
	for _, want := range []string{"cpu 0.4%   rss 38 MiB", "41,288 jobs, kept 7d"} {
		if got := frame(a); !strings.Contains(got, want) {
			t.Errorf("no word of %q in\n%s", want, got)
		}
	}
	a.CPU = 0.05
	if got := frame(a); !strings.Contains(got, "cpu <0.1%") {
		t.Errorf("a little:\n%s", got)
	}
	a.CPU, a.Kept = 0, 0
	if got := frame(a); strings.Contains(got, "cpu") || strings.Contains(got, "kept 0") || strings.Contains(got, "jobs,") {
		t.Errorf("made up:\n%s", got)
	}
}

// TestTimesOfAJob: each moment of its life is told once it is known, and the end only
// while there is a pace.
func TestTimesOfAJob(t *testing.T) {
	t.Parallel()
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	for name, tt := range map[string]struct {
		job  snapshot.Job
		want string
	}{
		"unknown": {snapshot.Job{State: "pending"}, ""},
		"pending": {snapshot.Job{State: "pending", Created: at(time.Minute)}, "queued 14:01:37Z, 1m ago"},
		"rests":   {snapshot.Job{State: "pending", Created: at(time.Minute), RestsUntil: at(-20 * time.Second)}, "queued 14:01:37Z, 1m ago|again 14:02:57Z, in 20s"},
		"works":   {snapshot.Job{State: "working", Owner: "this", Created: at(50 * time.Second), Started: at(40 * time.Second), Done: 2, Total: 3}, "queued 14:01:47Z, 50s ago|started 14:01:57Z, after 10s|ends about 14:02:57Z at this pace"},
		"no pace": {snapshot.Job{State: "working", Owner: "this", Started: at(40 * time.Second)}, "started 14:01:57Z"},
		"unsent":  {snapshot.Job{State: "success", Started: at(40 * time.Second), Unsent: at(30 * time.Second)}, "started 14:01:57Z|done 14:02:07Z, 30s ago"},
		"ended":   {snapshot.Job{State: "error", Created: at(40 * time.Second), Started: at(40 * time.Second), Finished: at(39 * time.Second)}, "queued 14:01:57Z, 40s ago|started 14:01:57Z, after 0s|ended 14:01:58Z, after 1.0s"},
		"clocks":  {snapshot.Job{State: "working", Created: at(time.Second), Started: at(9 * time.Second)}, "queued 14:02:36Z, 1s ago|started 14:02:28Z"},
	} {
		p := view{painter: newPainter(0, 0, Caps{}), s: shown(picture(), Caps{})}
		var got []string
		for _, f := range p.times(tt.job) {
			got = append(got, f.name+" "+f.text)
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestCursorStaysFromNarrowToWide: between the narrow and the wide form of the
// overview the row of the cursor is seen at each size, and it is the same.
func TestCursorStaysFromNarrowToWide(t *testing.T) {
	t.Parallel()
	many := picture()
	for i := range 60 {
		many.Jobs = append(many.Jobs, snapshot.Job{UID: fmt.Sprint("u", i), Name: fmt.Sprintf("j%03d", i), State: "pending", Created: noon})
		many.Repos = append(many.Repos, snapshot.Repo{Namespace: "default", Name: fmt.Sprintf("r%03d", i)})
	}
	caps := Caps{Mono: true, ASCII: true}
	start := shown(many, caps)
	for _, keys := range [][]string{{"end", "up", "up"}, {"pgdown", "pgdown"}, {"tab", "end", "up"}, {"tab", "pgdown", "pgdown", "up"}, {"2", "end"}, {"3", "pgdown", "pgdown"}} {
		s := press(start, keys...)
		label := s.jobUID[1:]
		want := fmt.Sprintf("j%03s", label)
		if s.focus == paneRepos {
			want = strings.TrimPrefix(s.repoKey, "default/")
		}
		for w := 76; w <= 144; w++ {
			for _, h := range []int{16, 20, 24, 29, 30, 35, 40} {
				frame := Render(s, w, h, caps)
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
