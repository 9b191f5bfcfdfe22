package screen

import (
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

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
	for later, want := range map[time.Duration]string{0: "Next try in 11s, R now", 10 * time.Second: "Next try in 1s, R now",
		11 * time.Second: "Trying now"} {
		at := s
		at.Now = noon.Add(later)
		if got := line(at, 80, 1); got != " ! OFFLINE; as of 13:56:25Z, 6m ago. "+want {
			t.Errorf("%s later: %q", later, got)
		}
	}
	for w := MinWidth; w < 160; w++ {
		if got := line(s, w, 1); !strings.HasPrefix(got, " ! OFFLINE") || !strings.HasSuffix(got, "Next try in 11s, R now") {
			t.Errorf("%d cells: %q", w, got)
		}
	}
	if got := line(s, 80, 23); !strings.Contains(got, "R try now") || !strings.Contains(got, "D doctor") || strings.Contains(got, "p pull") {
		t.Errorf("the keys: %q", got)
	}
	old := apiUnavailable()
	old.Snap.API.Next, old.Snap.API.Tries = time.Time{}, 0
	if got := line(old, 80, 1); got != " ! OFFLINE; as of 13:56:25Z, 6m ago" {
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

// TestRepositoryFacts: the directory that is written, and why its job waits.
func TestRepositoryFacts(t *testing.T) {
	t.Parallel()
	snap := testSnapshot()
	snap.Repos[1].Sink = "/srv/boards/east"
	snap.Jobs = append(snap.Jobs, snapshot.Job{UID: "w", Namespace: snap.Repos[1].Namespace, Repository: snap.Repos[1].Name, Name: "w",
		State: "pending", WaitReason: "no prefix"})
	s := press(shown(snap, widget.Caps{Mono: true}), "3", "down")
	for name, at := range map[string]State{"pane": s, "page": press(s, "enter")} {
		f := render(at, 140, 40, at.Caps)
		for _, want := range []string{"target       /srv/boards/east", "job waits    no prefix"} {
			if !strings.Contains(f, want) {
				t.Errorf("%s: no %q in\n%s", name, want, f)
			}
		}
	}
}

// TestRetryNow: R retries an unavailable source, and through it an unavailable API. It sends no
// action to an available API or when read-only.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	hurry := []Action{{Verb: snapshot.Hurry}}
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

// TestOverviewShares: lists get the lines that they need before others get more; what runs comes
// first and has the focus, else the repositories, until the user has pressed a key.
func TestOverviewShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lines, first, second, a, b int }{
		{20, 10, 7, 10, 7}, {20, 50, 50, 12, 8}, {20, 50, 5, 15, 5}, {20, 5, 50, 5, 15}, {11, 6, 30, 6, 5}, {8, 50, 50, 4, 4},
	} {
		if a, b := shares(c.lines, c.first, c.second); a != c.a || b != c.b {
			t.Errorf("%d for %d and %d: %d and %d", c.lines, c.first, c.second, a, b)
		}
	}
	idle := testSnapshot()
	for i := range idle.Jobs {
		idle.Jobs[i].State, idle.Jobs[i].Finished, idle.Jobs[i].Undelivered = "success", noon, time.Time{}
	}
	idle.Events = []snapshot.Event{{At: noon, Level: "debug", Text: "a detail"}, {At: noon, Level: "info", Text: "a pull"}}
	caps := widget.Caps{ASCII: true, Mono: true}
	for _, size := range [][2]int{{60, 15}, {80, 24}, {120, 35}, {200, 60}} {
		f := render(shown(idle, caps), size[0], size[1], caps)
		repos, jobs := strings.Index(f, "Repositories"), strings.Index(f, " Jobs -")
		if repos < 0 || jobs < repos || !strings.Contains(f, "|> ") || strings.Index(f, "|> ") > jobs || strings.Contains(f, "a detail") {
			t.Errorf("%v, nothing runs:\n%s", size, f)
		}
		f = render(shown(testSnapshot(), caps), size[0], size[1], caps)
		if repos, jobs := strings.Index(f, "Repositories"), strings.Index(f, " Jobs -"); jobs < 0 || repos < jobs || strings.Index(f, "|> ") > repos {
			t.Errorf("%v, jobs run:\n%s", size, f)
		}
	}
	s := shown(idle, caps).Show(testSnapshot())
	if s.overview.onRepos {
		t.Error("the focus is not on what runs")
	}
	if s = press(s, "down").Show(idle); s.overview.onRepos {
		t.Error("the focus moves under the hands of the user")
	}
}
