package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

func bad(at time.Duration, job, text string) snapshot.Event {
	return snapshot.Event{At: noon.Add(at), Level: "error", Job: job, Text: text}
}

func with(events ...snapshot.Event) *snapshot.Snapshot {
	s := testSnapshot()
	s.Events, s.Repos[1].Healthy = events, true
	return s
}

// TestErrorsStayUntilRead: an error that has left the snapshot stays in the status line and in
// the pane until the pane was opened.
func TestErrorsStayUntilRead(t *testing.T) {
	t.Parallel()
	status := func(s State) string {
		lines := strings.Split(strip(render(s, 100, 24, widget.Caps{})), "\n")
		return lines[22]
	}
	s := shown(with(bad(0, "a", "first")), widget.Caps{})
	s = s.Show(with())
	if n := s.issues.unread(); n != 1 || !strings.Contains(status(s), "a: first") || !strings.Contains(status(s), "e errors 1") {
		t.Fatalf("%d unread, %q", n, status(s))
	}
	// The same snapshot again, or a cleared filter, adds nothing.
	s = press(s.Show(with(bad(0, "a", "first"))).Show(with(bad(0, "a", "first"))), "2", "/", "x", "enter", "esc")
	if n := s.issues.unread(); n != 1 {
		t.Fatalf("%d unread after the same snapshot", n)
	}
	s = press(s, "e")
	if s.issues.unread() != 0 || len(s.issues.list) != 1 {
		t.Fatalf("opened: %+v", s.issues.list)
	}
	s = press(s, "esc")
	if strings.Contains(status(s), "errors") || strings.Contains(status(s), widget.UnicodeGlyphs.State["error"]) {
		t.Errorf("what was read is still told: %q", status(s))
	}
	// A later repetition is a new issue.
	s = s.Show(with(bad(time.Second, "a", "first")))
	if len(s.issues.list) != 1 || s.issues.list[0].times < 2 || s.issues.unread() != 1 {
		t.Errorf("again: %+v", s.issues.list)
	}
}

// TestNoticeEnds: a notice of a key lives for some seconds, and a new error replaces it at once.
func TestNoticeEnds(t *testing.T) {
	t.Parallel()
	status := func(s State, after time.Duration) string {
		s.Now = s.Now.Add(after)
		return strings.Split(strip(render(s, 100, 24, widget.Caps{})), "\n")[22]
	}
	s := press(shown(with(), widget.Caps{}), "e")
	if !strings.Contains(status(s, toastAge-1), "no errors so far") || strings.Contains(status(s, toastAge), "no errors") {
		t.Errorf("%q, then %q", status(s, toastAge-1), status(s, toastAge))
	}
	for name, s := range map[string]State{"event": s.Show(with(bad(0, "a", "first"))), "lost": s.Lose("first"), "failed": s.Fail("first")} {
		for _, after := range []time.Duration{0, time.Hour} {
			if got := status(s, after); !strings.Contains(got, "first") || strings.Contains(got, "no errors") {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

func TestErrorsCollected(t *testing.T) {
	t.Parallel()
	s := shown(with(), widget.Caps{})
	down := with()
	down.API.Up, down.API.Error = false, "refused"
	sick := with()
	sick.Problem = "no room"
	s = s.Show(down).Show(down).Show(sick).Show(sick).Lose("the daemon is away").Lose("the daemon is away").Fail("not \x1b[31mallowed")
	var got []string
	for _, e := range s.issues.list {
		got = append(got, fmt.Sprintf("%s x%d", e.text, e.times))
	}
	want := []string{"API: refused x1", "no room x1", "the daemon is away x1", "not [31mallowed x1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s = s.Show(with()).Show(down); s.issues.list[len(s.issues.list)-1].times != 2 {
		t.Errorf("down again: %+v", s.issues.list)
	}
	if s := shown(with(bad(-25*time.Hour, "old", "x"), bad(-23*time.Hour, "night", "x")), widget.Caps{}); s.issues.unread() != 1 ||
		len(s.issues.list) != 2 {
		t.Errorf("the first snapshot: %+v", s.issues.list)
	}
}

// TestErrorsAreBounded: the oldest is dropped, read ones first.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	var list issues
	for i := range maxIssues {
		list.add(issue{at: noon, issueKey: issueKey{text: fmt.Sprint(i)}})
	}
	before := slices.Clone(list.list)
	list.list = slices.Clone(list.list)
	list.list[7].read = true
	list.add(issue{at: noon, issueKey: issueKey{text: "one more"}})
	if len(list.list) != maxIssues || list.list[0].text != "0" || list.list[7].text != "8" {
		t.Errorf("%d kept, the first %q, at 7 %q", len(list.list), list.list[0].text, list.list[7].text)
	}
	if list.add(issue{at: noon, issueKey: issueKey{text: "and one"}}); len(list.list) != maxIssues || list.list[0].text != "1" {
		t.Errorf("%d kept, the first %q", len(list.list), list.list[0].text)
	}
	// An older state is unchanged.
	changed := issues{list: before, last: maxIssues}
	kept := changed
	changed.add(issue{at: noon, issueKey: issueKey{text: "5"}})
	changed.markRead(len(kept.list))
	changed.drop(func(e issue) bool { return e.id == 3 })
	for i, e := range kept.list {
		if e.text != fmt.Sprint(i) || e.read || e.times != 1 {
			t.Fatalf("%d has become %+v", i, e)
		}
	}
}

func TestErrorsPane(t *testing.T) {
	t.Parallel()
	s := shown(failingSnapshot(), widget.Caps{})
	at := func(s State) string {
		return s.issues.list[s.overlay.(issuesPane).at(&s.scene)].text
	}
	pane := press(s, "e", "down")
	if !strings.HasPrefix(at(pane), "401") {
		t.Fatalf("the cursor is on %q", at(pane))
	}
	more := failingSnapshot()
	more.Events = append(more.Events, bad(time.Second, "new", "newest"))
	if pane := pane.Show(more); !strings.HasPrefix(at(pane), "401") {
		t.Errorf("a new error moved the cursor to %q", at(pane))
	}
	// Issues that arrive before a key press do not move the cursor.
	top := press(s, "e")
	was := at(top)
	later := top.Show(more)
	if at(later) != was {
		t.Errorf("the cursor at the top went from %q to %q", was, at(later))
	}
	if later := press(later, "d"); len(later.issues.list) != 4 || later.issues.unread() != 1 {
		t.Errorf("d dismisses what has just come: %+v", later.issues.list)
	}
	if later := press(later, "D"); len(later.issues.list) != 1 || later.issues.unread() != 1 {
		t.Errorf("D dismisses what has just come: %+v", later.issues.list)
	}
	if later := press(later, "up"); press(later, "esc").issues.unread() != 0 {
		t.Error("what the cursor is on is not read")
	}
	if _, out := pane.Key("c", "c"); out.Copy != "limpet job show lab-east-sync" {
		t.Errorf("copied %q", out.Copy)
	}
	if to := press(pane, "enter"); to.screen != screenDetail || to.detail.subject.object.job.UID != "z8z8" || to.overlay != nil {
		t.Errorf("Enter leads to screen %d, %q", to.screen, to.detail.subject.object.job.UID)
	}
	if to := press(pane, "down", "enter"); to.screen != screenRepo || to.repo.page.subject.object.repo.Name != "lab-east" {
		t.Errorf("Enter leads to screen %d, %q", to.screen, to.repo.page.subject.object.repo.Name)
	}
	if to := press(pane, "up", "enter"); to.overlay != nil || to.screen != screenAgent || !strings.Contains(to.toast, "limpet doctor") {
		t.Errorf("Enter on what nothing shows leads to %d: %q", to.screen, to.toast)
	}
	gone := press(pane, "d")
	if len(gone.issues.list) != 3 || !strings.HasPrefix(at(gone), "resolve") {
		t.Errorf("dismissed: %d left, the cursor on %q", len(gone.issues.list), at(gone))
	}
	if gone = gone.Show(failingSnapshot()); len(gone.issues.list) != 3 {
		t.Error("what was dismissed came back with the next snapshot")
	}
	if gone = press(gone, "d", "d", "d"); gone.overlay != nil || len(gone.issues.list) != 0 {
		t.Errorf("the last: %+v", gone.overlay)
	}
	if all := press(pane, "D"); all.overlay != nil || len(all.issues.list) != 0 {
		t.Error("D must dismiss all")
	}
	if none := press(gone, "e"); none.overlay != nil || none.toast != "no errors so far" {
		t.Errorf("no errors: %q", none.toast)
	}
}

// TestErrorOpensItsJob: Enter opens the job of the last occurrence, live or recorded, whatever
// other jobs have its name.
func TestErrorOpensItsJob(t *testing.T) {
	t.Parallel()
	event := func(at time.Duration, uid string) snapshot.Event {
		e := bad(at, "lab-east-sync", "refused")
		e.UID, e.Repo = uid, "lab-east"
		return e
	}
	for _, tt := range []struct {
		events []snapshot.Event
		uid    string
		live   bool
	}{
		{[]snapshot.Event{event(0, "ended"), event(1, "y7c1")}, "y7c1", true},
		{[]snapshot.Event{event(0, "y7c1"), event(1, "ended")}, "ended", false},
	} {
		s := press(shown(with(tt.events...), widget.Caps{}), "e")
		if _, out := s.Key("c", "c"); out.Copy != "limpet job show "+tt.uid || s.issues.list[0].times != 2 {
			t.Errorf("copies %q of %+v", out.Copy, s.issues.list)
		}
		to := press(s, "enter")
		_, look := to.Fetch()
		if to.screen != screenDetail || to.detail.subject.object.UID != tt.uid || to.detail.subject.live != tt.live || (look == nil) != tt.live {
			t.Errorf("Enter leads to screen %d, %+v", to.screen, to.detail.subject.object.Subject)
		}
		if f := strip(render(to, 60, 15, widget.Caps{})); !strings.Contains(f, "lab-east-sync") {
			t.Errorf("not shown:\n%s", f)
		}
	}
}

// TestErrorsAreShownWhole: every word of an error can be scrolled into view, whatever its length
// and the size of the screen.
func TestErrorsAreShownWhole(t *testing.T) {
	t.Parallel()
	var words []string
	for i := range 120 {
		words = append(words, fmt.Sprintf("word%03d", i))
	}
	s := press(shown(with(bad(0, "a", "short"), bad(1, "b", strings.Join(words, " ")), bad(2, "c", "short")), widget.Caps{}), "e", "down")
	for _, size := range [][2]int{{40, 10}, {80, 24}} {
		at, seen := s, ""
		at.W, at.H = size[0], size[1]
		for range 60 {
			seen += strip(render(at, size[0], size[1], widget.Caps{}))
			at = press(at, "pgdown")
		}
		for _, word := range append(words, "job show b") {
			if !strings.Contains(seen, word) {
				t.Fatalf("%v: %q is never on the screen", size, word)
			}
		}
	}
}

// TestCommands: Y copies the command that shows the row under the cursor.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	twins := testSnapshot()
	twins.Repos[1].Name, twins.Repos[1].Namespace = "infra-alerts", "other"
	for _, tt := range []struct {
		s    State
		want string
	}{
		{s, "limpet job show team-dash-sync"},
		{press(s, "enter"), "limpet job show team-dash-sync"},
		{press(s, "end"), "limpet history show y7c1"},
		{press(s, "end", "up"), "limpet job show z8z8"},
		{press(s, "3", "down"), "limpet repo show lab-east"},
		{press(s, "3", "down", "enter"), "limpet repo show lab-east"},
		{press(shown(twins, widget.Caps{}), "3"), "limpet repo show infra-alerts --namespace default"},
		{shown(&snapshot.Snapshot{At: noon}, widget.Caps{}), ""},
	} {
		at, out := tt.s.Key("Y", "Y")
		if out.Copy != tt.want || tt.want != "" && at.toast != "copied: "+tt.want {
			t.Errorf("copied %q, said %q, want %q", out.Copy, at.toast, tt.want)
		}
	}
}

// TestUnhealthyRepositoriesAreErrors: an unhealthy repository is an issue even without a failed
// job, once for each reason.
func TestUnhealthyRepositoriesAreErrors(t *testing.T) {
	t.Parallel()
	told := func(s State) (out []string) {
		for _, e := range s.issues.list {
			if e.kind == "repo" {
				out = append(out, fmt.Sprintf("%s %s: %s x%d", e.at.Format("15:04"), e.name, e.text, e.times))
			}
		}
		return out
	}
	is := func(s State, want ...string) {
		t.Helper()
		if got := told(s); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	well := with()
	s := shown(well, widget.Caps{})
	is(s)
	sick := testSnapshot()
	sick.Events = nil
	s = s.Show(sick).Show(sick)
	is(s, "11:00 lab-east: 401 bad credentials x1")
	if s.issues.unread() != 1 {
		t.Errorf("%d unread", s.issues.unread())
	}
	other := testSnapshot()
	other.Events, other.Repos[1].Health, other.Repos[1].Conditions = nil, "no such branch", nil
	s = s.Show(other)
	is(s, "11:00 lab-east: 401 bad credentials x1", "14:02 lab-east: no such branch x1")
	s = s.Show(well).Show(other)
	is(s, "11:00 lab-east: 401 bad credentials x1", "14:02 lab-east: no such branch x2")
	unsaid := testSnapshot()
	unsaid.Events, unsaid.Repos[1].Health = nil, ""
	is(shown(unsaid, widget.Caps{}), "11:00 lab-east: it is not healthy, and the server does not say why x1")
	if to := press(s, "e", "enter"); to.screen != screenRepo || to.repo.page.subject.object.repo.Name != "lab-east" {
		t.Errorf("Enter leads to %d, %q", to.screen, to.repo.page.subject.object.repo.Name)
	}
}

// TestTheSameErrorAgain: an error that differs only in its local port is not a new one; another
// reason is.
func TestTheSameErrorAgain(t *testing.T) {
	t.Parallel()
	text := func(port int) string {
		return fmt.Sprintf("the host name is not known here: read udp 10.0.0.2:%d->[2001:db8::1]:53: i/o timeout", port)
	}
	sick := func(text string) *snapshot.Snapshot {
		s := with()
		r := &s.Repos[1]
		r.Healthy, r.Checked, r.Health = false, noon, text
		s.Sources = []snapshot.Source{{UID: "s1", Name: "base", State: snapshot.SourceFailed, Message: text}}
		s.UnhealthyConnections = []snapshot.Connection{{Name: "app", Checked: noon, Message: text}}
		return s
	}
	s := shown(with(), widget.Caps{})
	for port := range 5 {
		s = s.Show(sick(text(40000 + port)))
	}
	if len(s.issues.list) != 3 {
		t.Errorf("%d errors: %+v", len(s.issues.list), s.issues.list)
	}
	for _, e := range s.issues.list {
		if e.times != 1 || !strings.HasSuffix(e.text, "read udp [2001:db8::1]:53: i/o timeout") {
			t.Errorf("%d times: %q", e.times, e.text)
		}
	}
	if s = s.Show(sick("401 bad credentials")); len(s.issues.list) != 6 {
		t.Errorf("another reason: %d errors", len(s.issues.list))
	}
}

// TestRepairedIssues: what lasts no more leaves the status line and stays in the list; what has
// happened does so after the next good pull if it was one.
func TestRepairedIssues(t *testing.T) {
	t.Parallel()
	good := testSnapshot()
	good.Events, good.Repos[1].Healthy, good.Repos[1].Unread, good.Sources = nil, true, nil, nil
	good.Repos[1].Conditions, good.Repos[1].SyncState = nil, "success"
	start := shown(good, widget.Caps{}) // healthy
	name := good.Repos[1].Name
	for what, c := range map[string]struct {
		fails func(*snapshot.Snapshot)
		stays bool
	}{
		"health":     {func(s *snapshot.Snapshot) { s.Repos[1].Healthy, s.Repos[1].Health = false, "401" }, false},
		"API":        {func(s *snapshot.Snapshot) { s.API.Up, s.API.Error = false, "refused" }, false},
		"problem":    {func(s *snapshot.Snapshot) { s.Problem = "the token is refused" }, false},
		"connection": {func(s *snapshot.Snapshot) { s.UnhealthyConnections = []snapshot.Connection{{Name: "c", Message: "no"}} }, false},
		"pull": {func(s *snapshot.Snapshot) {
			s.Jobs = append(s.Jobs, snapshot.Job{UID: "f1", Repository: name, Action: "pull", Finished: noon})
			s.Events = []snapshot.Event{{At: noon, Level: "error", Job: "j", Repo: name, UID: "f1", Text: "404"}}
		}, false},
		"push": {func(s *snapshot.Snapshot) {
			s.Jobs = append(s.Jobs, snapshot.Job{UID: "f1", Repository: name, Action: "push", Finished: noon})
			s.Events = []snapshot.Event{{At: noon, Level: "error", Job: "j", Repo: name, UID: "f1", Text: "rejected"}}
		}, true},
	} {
		ill := testSnapshot()
		*ill = *good
		ill.Repos, ill.Jobs = slices.Clone(good.Repos), slices.Clone(good.Jobs)
		c.fails(ill)
		at := start.Show(ill)
		before := at.issues.unread()
		healed := *good
		healed.Repos, healed.Events = slices.Clone(good.Repos), ill.Events
		healed.Repos[1].Synced = noon.Add(time.Minute)
		at = at.Show(&healed)
		if before == 0 || (at.issues.unread() > 0) != c.stays || len(at.issues.list) == 0 {
			t.Errorf("%s: %d unread, then %d of %d", what, before, at.issues.unread(), len(at.issues.list))
		}
	}
	if at := start.Fail("refused").Show(good); at.issues.unread() != 1 {
		t.Error("the failure of an action is forgotten")
	}
	if at := start.Lose("no daemon").Show(good); at.issues.unread() != 0 {
		t.Error("the daemon is back, and the status line says that it is gone")
	}
}
