package screen

import (
	"slices"
	"strings"
	"testing"

	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// open reports whether a confirmation is open; askedText returns its text.
func open(s State) bool { _, ok := s.overlay.(confirm); return ok }

func askedText(s State) string {
	q, _ := s.overlay.(confirm)
	return q.title + " " + strings.Join(q.lines, " ")
}

// action returns the only action of an outcome.
func action(out Outcome) *Action {
	if len(out.Actions) != 1 {
		return nil
	}
	return &out.Actions[0]
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	t.Run("p asks for an incremental pull at once", func(t *testing.T) {
		_, out := s.Key("p", "p")
		want := Action{Verb: snapshot.Pull, Namespace: "default", Name: "team-dash"}
		if action(out) == nil || *action(out) != want {
			t.Errorf("got %+v, want %+v", action(out), want)
		}
	})
	t.Run("P asks first and Enter decides nothing", func(t *testing.T) {
		asked, out := s.Key("P", "P")
		if action(out) != nil || !open(asked) {
			t.Fatal("P must ask")
		}
		still, out := asked.Key("enter", "")
		if action(out) != nil || !open(still) {
			t.Error("Enter must leave the question open")
		}
		no, out := still.Key("n", "n")
		if action(out) != nil || open(no) {
			t.Error("n must end the question without an action")
		}
		_, out = still.Key("y", "y")
		if action(out) == nil || action(out).Verb != snapshot.PullFull {
			t.Errorf("y must act, got %+v", action(out))
		}
	})
	t.Run("q leaves a daemon at once", func(t *testing.T) {
		for _, key := range []string{"q", "ctrl+c"} {
			if _, out := s.Key(key, ""); !out.Quit {
				t.Errorf("%s must quit: the jobs go on in the daemon", key)
			}
		}
	})
	t.Run("q asks when jobs run in this process", func(t *testing.T) {
		alone := s
		alone.Source = Standalone
		for _, keys := range [][]string{{"q", "y"}, {"ctrl+c", "ctrl+c"}, {"q", "ctrl+c"}, {"?", "ctrl+c", "y"}} {
			at := press(alone, keys[:len(keys)-1]...)
			if !open(at) {
				t.Fatalf("%v: no question", keys)
			}
			if _, out := at.Key("n", "n"); out.Quit || action(out) != nil {
				t.Errorf("%v: n must stay", keys)
			}
			if _, out := at.Key(keys[len(keys)-1], ""); !out.Quit || action(out) != nil {
				t.Errorf("%v must quit", keys)
			}
		}
		idle := testSnapshot()
		idle.Agent.Claims = 0
		if _, out := alone.Show(idle).Key("q", "q"); !out.Quit {
			t.Error("nothing runs: q must quit at once")
		}
	})
	t.Run("the job of another agent is cancelled there", func(t *testing.T) {
		at := press(s, "down", "down", "down", "x")
		if !open(at) || !strings.Contains(askedText(at), "another agent") {
			t.Fatalf("the question does not say so: %+v", at.overlay)
		}
		if _, out := at.Key("y", "y"); action(out) == nil || action(out).Verb != snapshot.Cancel || action(out).Name != "team-dash-pr-481" {
			t.Errorf("got %+v", action(out))
		}
	})
	t.Run("a job that is done is not cancelled", func(t *testing.T) {
		unsent := jobPhases()
		for _, keys := range [][]string{{"x"}, {"down", "down", "x"}} {
			if at := press(shown(&unsent, widget.Caps{}), keys...); open(at) || at.toast == "" {
				t.Errorf("%v: want a refusal that says why", keys)
			}
		}
	})
	t.Run("a job that rests or has ended is tried again", func(t *testing.T) {
		lives := jobPhases()
		for _, tt := range []struct {
			keys      []string
			uid, says string
		}{
			{[]string{"down", "r"}, "z8z8", "retry in 18s"},
			{[]string{"down", "down", "r"}, "y7c1", "finished: dead"},
			{[]string{"down", "down", "enter", "r"}, "y7c1", "a new job"},
		} {
			at := press(shown(&lives, widget.Caps{}), tt.keys...)
			if !open(at) || !strings.Contains(askedText(at), tt.says) {
				t.Fatalf("%v: the question does not say %q: %+v, %s", tt.keys, tt.says, at.overlay, at.toast)
			}
			if still, out := at.Key("enter", ""); action(out) != nil || !open(still) {
				t.Errorf("%v: Enter must leave the question open", tt.keys)
			}
			said, out := at.Key("y", "y")
			if action(out) == nil || action(out).Verb != snapshot.Retry || action(out).UID != tt.uid || !strings.Contains(said.toast, "requested") {
				t.Errorf("%v: got %+v, said %q", tt.keys, action(out), said.toast)
			}
		}
	})
	t.Run("what runs, waits or is not sent yet is not tried again", func(t *testing.T) {
		lives := jobPhases()
		for why, at := range map[string]State{
			"its result is not":          press(shown(&lives, widget.Caps{}), "r"),
			"is running":                 press(s, "r"),
			"already queued":             press(s, "end", "up", "r"),
			"no job is under the cursor": press(s, "3", "r"),
			"nothing is sent or": press(func() State { down := lives; down.API.Up = false; return shown(&down, widget.Caps{}) }(),
				"down", "r"),
		} {
			if open(at) || !strings.Contains(at.toast, why) {
				t.Errorf("want a refusal that says %q, got %q", why, at.toast)
			}
		}
	})
	t.Run("a dead job that has left the lists is tried again from its detail", func(t *testing.T) {
		lives := jobPhases()
		at := press(shown(&lives, widget.Caps{}), "end", "enter")
		later := lives
		later.Jobs = later.Jobs[:2]
		if _, out := press(at.Show(&later), "r").Key("y", ""); action(out) == nil || action(out).UID != "y7c1" {
			t.Errorf("got %+v", action(out))
		}
	})
	t.Run("a cursor at the top stays there when its job ends", func(t *testing.T) {
		snap := testSnapshot()
		ended := snap.Jobs[0]
		ended.State, ended.Finished = "success", noon
		snap.Jobs = append(snap.Jobs[1:], ended)
		if j, _ := selected(s.Show(snap)); j.UID != snap.Jobs[0].UID {
			t.Errorf("cursor is on %q", j.UID)
		}
	})
	t.Run("nothing is sent while the API is unreachable", func(t *testing.T) {
		snap := testSnapshot()
		snap.API.Up = false
		got, out := shown(snap, widget.Caps{}).Key("p", "p")
		if action(out) != nil || got.toast == "" {
			t.Error("want a refusal that says why")
		}
	})
	t.Run("the cursor stays on its job when others come before it", func(t *testing.T) {
		at := press(s, "down")
		snap := testSnapshot()
		snap.Jobs = append([]snapshot.Job{{UID: "new", Name: "new", State: "working"}}, snap.Jobs...)
		if j, _ := selected(at.Show(snap)); j.UID != "9x1ab" {
			t.Errorf("cursor is on %q", j.UID)
		}
	})
	t.Run("the cursor takes the next row when its job goes", func(t *testing.T) {
		at := press(s, "down")
		snap := testSnapshot()
		snap.Jobs = append(snap.Jobs[:1:1], snap.Jobs[2:]...)
		if j, _ := selected(at.Show(snap)); j.UID != "q0p4" {
			t.Errorf("cursor is on %q", j.UID)
		}
	})
	t.Run("the detail keeps a job that has gone", func(t *testing.T) {
		at := press(s, "enter")
		snap := testSnapshot()
		snap.Jobs = snap.Jobs[1:]
		at = at.Show(snap)
		if j, live := *at.detail.subject.object.job, at.detail.subject.live; live || j.UID != "5c1e9c54" {
			t.Errorf("detail shows %q, live %v", j.UID, live)
		}
	})
	t.Run("Esc clears the filter before it leaves", func(t *testing.T) {
		at := press(s, "2", "/", "e", "a", "s", "t", "enter")
		if len(at.jobs.rows) != 2 {
			t.Fatalf("filter lets %d jobs through, want 2", len(at.jobs.rows))
		}
		at = press(at, "esc")
		if at.filter() != "" || at.screen != screenJobs {
			t.Error("the first Esc must clear the filter and stay")
		}
		if at = press(at, "esc"); at.screen != screenOverview {
			t.Error("the second Esc must leave")
		}
	})
	t.Run("s asks before it suspends and resumes at once", func(t *testing.T) {
		for _, keys := range [][]string{{"3", "down", "s"}, {"3", "down", "enter", "s"}, {"2", "end", "s"}} {
			at := press(s, keys...)
			if !open(at) || !strings.Contains(askedText(at), "Suspend lab-east?") ||
				!strings.Contains(askedText(at), "Pauses checks and pulls") {
				t.Fatalf("%v: the question names no consequence: %+v %s", keys, at.overlay, at.toast)
			}
			for _, key := range []string{"enter", "n", "s", "esc"} {
				if _, out := at.Key(key, key); action(out) != nil {
					t.Errorf("%v %s: must not act", keys, key)
				}
			}
			want := Action{Verb: snapshot.Suspend, Namespace: "default", Name: "lab-east", UID: "r2"}
			if _, out := at.Key("y", "y"); action(out) == nil || *action(out) != want {
				t.Errorf("%v: got %+v, want %+v", keys, action(out), want)
			}
		}
		snap := testSnapshot()
		snap.Repos[1].Suspended = true
		at := press(shown(snap, widget.Caps{}), "3", "down")
		after, out := at.Key("s", "s")
		if want := (Action{Verb: snapshot.Resume, Namespace: "default", Name: "lab-east", UID: "r2"}); action(out) == nil ||
			*action(out) != want || open(after) {
			t.Errorf("a suspended one: got %+v, want %+v", action(out), want)
		}
		snap.API.Up = false
		if got, out := shown(snap, widget.Caps{}).Key("s", "s"); action(out) != nil || open(got) || got.toast == "" {
			t.Error("the API is unreachable: want a refusal that says why")
		}
	})
	t.Run("enter opens a repository, then its job, and esc goes back", func(t *testing.T) {
		at := press(s, "3", "down", "enter")
		if r, live := *at.repo.page.subject.object.repo, at.repo.page.subject.live; at.screen != screenRepo || r.Name != "lab-east" || !live {
			t.Fatalf("screen %d shows %q", at.screen, r.Name)
		}
		if asked := press(at, "x"); !open(asked) || !strings.Contains(askedText(asked), "lab-east-sync") {
			t.Errorf("x on its job: %+v, says %q", asked.overlay, asked.toast)
		}
		if facts := press(at, "tab", "x"); open(facts) || !facts.toastBad || press(facts, "tab", "w").wide == at.wide {
			t.Errorf("without the jobs x asks, or w widens nothing: %q", facts.toast)
		}
		job := press(at, "enter")
		if j := *job.detail.subject.object.job; job.screen != screenDetail || j.UID != "z8z8" {
			t.Errorf("screen %d shows job %q", job.screen, j.UID)
		}
		if back := press(job, "esc"); back.screen != screenRepo {
			t.Errorf("esc leads to %d", back.screen)
		}
		if back := press(job, "esc", "esc"); back.screen != screenRepos {
			t.Errorf("the second esc leads to %d", back.screen)
		}
		snap := testSnapshot()
		snap.Repos[1].LastRef = "last"
		at = at.Show(snap)
		snap = testSnapshot()
		snap.Repos = snap.Repos[:1]
		at = at.Show(snap)
		if r, live := *at.repo.page.subject.object.repo, at.repo.page.subject.live; live || r.Name != "lab-east" || r.LastRef != "last" {
			t.Errorf("of a repository that is gone it shows %q, live %v", r.Name, live)
		}
		if got, out := at.Key("p", "p"); action(out) != nil || got.toast == "" {
			t.Error("what is gone is not pulled")
		}
	})
	t.Run("[ and ] walk the places, with the jobs that they showed", func(t *testing.T) {
		at := press(s, "enter", "2", "down", "down", "enter", "3", "[")
		if j := *at.detail.subject.object.job; at.screen != screenDetail || j.UID != "q0p4" {
			t.Fatalf("screen %d shows %q", at.screen, j.UID)
		}
		at = press(at, "[", "[")
		if j := *at.detail.subject.object.job; at.screen != screenDetail || j.UID != "5c1e9c54" {
			t.Fatalf("two before: screen %d shows %q", at.screen, j.UID)
		}
		if at = press(at, "[", "["); at.screen != screenOverview {
			t.Errorf("the first place is %d", at.screen)
		}
		at = press(at, "]", "]", "]", "]", "]")
		if at.screen != screenRepos || len(at.forwards) != 0 {
			t.Errorf("the last place is %d", at.screen)
		}
		if at = press(at, "[", "1", "]"); at.screen != screenOverview {
			t.Error("a new place must end the way forward")
		}
	})
	t.Run("each screen keeps its filter", func(t *testing.T) {
		at := press(s, "2", "/", "e", "a", "s", "t", "enter", "3")
		if at.filter() != "" || len(at.repos.rows) != 4 {
			t.Errorf("the filter of the jobs holds on the repositories: %q", at.filter())
		}
		if at = press(at, "2"); at.filter() != "east" {
			t.Errorf("it is lost on the way back: %q", at.filter())
		}
	})
	t.Run("Enter on the first screen leads to the set-up where there is one", func(t *testing.T) {
		fresh := shown(&snapshot.Snapshot{At: noon, API: snapshot.API{Embedded: true, Up: true, Synced: true}}, widget.Caps{})
		if _, out := fresh.Key("enter", ""); out.SetUp {
			t.Error("there are settings already")
		}
		fresh.SetUp = true
		if _, out := fresh.Key("enter", ""); !out.SetUp {
			t.Error("it does not")
		}
		busy := s
		busy.SetUp = true
		if at, out := busy.Key("enter", ""); out.SetUp || at.screen != screenDetail {
			t.Error("with jobs there Enter opens them")
		}
	})
	t.Run("every key of the table does what help says without a snapshot", func(t *testing.T) {
		for _, b := range bindings {
			for _, k := range strings.Fields(b.press) {
				NewState("standalone", widget.Caps{}, noon).Key(k, "")
			}
		}
	})
}

// boxes are the keys that open overlays.
var boxes = map[string][]string{
	"help search": {"?", "p", "u", "l", "down"}, "no such key": {"?", "z", "z", "z"},
	"retry": {"end", "r"}, "quit": {"q"},
	"sort": {"o", "down"}, "sorted": {"o", "down", "enter", "2"}, "marks": {"*"}, "marks asked": {"*", "P"}, "zoom": {"z"},
	"wide": {"w"}, "field": {"/", "s", "t", "tab", "z", "enter"},
	"errors": {"e"}, "palette": {":"}, "palette found": {":", "p", "u", "down"}, "palette none": {":", "z", "z", "z", "z"},
}

// exampleStates returns states of each screen, with and without an object under the cursor.
func exampleStates() map[string]State {
	down := testSnapshot()
	down.API.Up = false
	lives := jobPhases()
	out := map[string]State{}
	for name, s := range map[string]State{"live": shown(testSnapshot(), widget.Caps{}),
		"mono": shown(testSnapshot(), widget.Caps{Mono: true}), "lives": shown(&lives, widget.Caps{}), "down": shown(down, widget.Caps{}),
		"empty": NewState(Standalone, widget.Caps{}, noon)} {
		for screen, keys := range map[string][]string{"overview": nil, "pane": {"tab"}, "jobs": {"2"}, "last job": {"2", "end"},
			"repos": {"3"}, "detail": {"enter"}, "repo": {"3", "down", "enter"}} {
			out[name+" "+screen] = press(s, keys...)
		}
	}
	return out
}

// TestOneSourceOfRefusals: help, hints and keys agree on which keys are disabled.
func TestOneSourceOfRefusals(t *testing.T) {
	t.Parallel()
	refused := 0
	for name, s := range exampleStates() {
		frame := strings.Split(strip(render(s, 200, 40, s.Caps)), "\n")
		hints := "  " + frame[len(frame)-1]
		whole := strip(render(press(s, "?"), 200, 60, s.Caps))
		for _, b := range bindings {
			if !b.here(s.screen) {
				continue
			}
			why := s.refusal(b)
			if b.group != "MOVE" && strings.Contains(whole, "-"+b.label+" ") != (why != "") {
				t.Errorf("%s: help marks %s, %q:\n%s", name, b.label, why, whole)
			}
			after, out := s.Key(strings.Fields(b.press)[0], "")
			if why != "" {
				refused++
				if after.toast != why || !after.toastBad || len(out.Actions) > 0 || after.overlay != nil {
					t.Errorf("%s: %s is refused (%s), and says %q", name, b.label, why, after.toast)
				}
				if len(strings.Fields(b.press)[0]) == 1 && strings.Contains(hints, "  "+strings.Fields(b.press)[0]+" ") {
					t.Errorf("%s: the hints offer %s, which does nothing:%s", name, b.label, hints)
				}
			} else if after.toastBad {
				t.Errorf("%s: %s says %q, and help does not know", name, b.label, after.toast)
			}
			listed := press(s, append([]string{"?"}, strings.Split(b.words, "")...)...)
			box := strip(render(listed, 140, 40, s.Caps))
			if marked := strings.Contains(box, "-"+b.label+" "); why != "" && !marked && !strings.Contains(box, why[:min(len(why), 30)]) ||
				why == "" && marked {
				t.Errorf("%s: help marks %s: %v, want %q\n%s", name, b.label, marked, why, box)
			}
		}
	}
	if refused < 50 {
		t.Errorf("%d refusals in all places: the test sees too little", refused)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	t.Run("Enter does what the key under the cursor does", func(t *testing.T) {
		at, out := press(s, "?", "p", "u", "l", "l").Key("enter", "")
		if a := action(out); a == nil || a.Verb != snapshot.Pull || at.overlay != nil {
			t.Errorf("got %+v, %+v", a, at.overlay)
		}
		if at := press(s, "?", "p", "u", "l", "l", "down", "enter"); !strings.Contains(askedText(at), "Full pull") {
			t.Errorf("the second is %q", askedText(at))
		}
		if at := press(s, "?", "r", "e", "t", "enter"); !strings.Contains(at.toast, "is running") {
			t.Errorf("what does nothing says %q", at.toast)
		}
	})
	t.Run("every key of the screen can be reached at each size", func(t *testing.T) {
		for _, size := range [][2]int{{40, 10}, {60, 20}, {80, 24}, {140, 40}} {
			at := press(s, "?")
			for range bindings {
				h := at.overlay.(chooser)
				b := h.found[h.at]
				frame := strip(render(at, size[0], size[1], widget.Caps{}))
				if !strings.Contains(frame, widget.UnicodeGlyphs.Cursor+b.label) {
					t.Fatalf("%v: no cursor on %s:\n%s", size, b.label, frame)
				}
				at = press(at, "down")
			}
		}
	})
}

func TestConfirmations(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	t.Run("a full pull names what it touches", func(t *testing.T) {
		said := askedText(press(s, "P"))
		for _, word := range []string{"288 objects", "team-dash-sync", "working", "lost"} {
			if !strings.Contains(said, word) {
				t.Errorf("no word of %q: %s", word, said)
			}
		}
		if said := askedText(press(s, "3", "down", "down", "P")); strings.Contains(said, "working") {
			t.Errorf("no pull works on lab-west: %s", said)
		}
	})
	t.Run("from 1,000 objects on the name has to be typed", func(t *testing.T) {
		for resources, typed := range map[int64]bool{999: false, 1000: true} {
			snap := testSnapshot()
			snap.Repos[0].Resources = resources
			at := press(shown(snap, widget.Caps{}), "3", "P")
			if q, _ := at.overlay.(confirm); (q.name != "") != typed {
				t.Fatalf("%d objects: name %q", resources, q.name)
			}
			if !typed {
				continue
			}
			if after, out := at.Key("y", "y"); len(out.Actions) > 0 || !open(after) {
				t.Error("y is a letter of a name here")
			}
			for _, letter := range "infra-alerts" {
				var out Outcome
				if _, out = at.Key("enter", ""); len(out.Actions) > 0 {
					t.Fatal("Enter acts before the name is whole")
				}
				at = press(at, string(letter))
			}
			if after, out := at.Key("enter", ""); action(out) == nil || action(out).Name != "infra-alerts" || open(after) {
				t.Errorf("the whole name: %+v", out)
			}
			if after, out := press(at, "x").Key("enter", ""); len(out.Actions) > 0 || !open(after) {
				t.Error("more than the name must not act")
			}
			if after, out := at.Key("esc", ""); len(out.Actions) > 0 || open(after) {
				t.Error("Esc must close")
			}
		}
	})
	t.Run("what writes to Git is run again only by its name", func(t *testing.T) {
		for kind, typed := range map[string]bool{"pull": false, "pr": false, "push": true, "delete": true, "move": true, "migrate": true} {
			snap := testSnapshot()
			snap.Jobs[6].Action = kind
			if q, _ := press(shown(snap, widget.Caps{}), "end", "r").overlay.(confirm); (q.name != "") != typed {
				t.Errorf("%s: name %q", kind, q.name)
			}
		}
	})
}

// TestLeaving: finish claims no new jobs and quits when none runs; stay resumes claiming.
func TestLeaving(t *testing.T) {
	t.Parallel()
	s := shown(testSnapshot(), widget.Caps{})
	s.Source = Standalone
	at, out := press(s, "q").Key("f", "f")
	if a := action(out); a == nil || a.Verb != snapshot.Drain || out.Quit || at.Ended() {
		t.Fatalf("f leads to %+v", out)
	}
	drained := func(busy, claims int) *snapshot.Snapshot {
		snap := testSnapshot()
		snap.Agent.Draining, snap.Agent.Busy, snap.Agent.Claims = noon, busy, claims
		return snap
	}
	idle := testSnapshot()
	idle.Agent.Busy = 0
	if at.Show(idle).Ended() {
		t.Error("it claims jobs still: it must not end")
	}
	if at.Show(drained(1, 0)).Ended() {
		t.Error("a result is not sent yet: it must not end")
	}
	if !at.Show(drained(0, 0)).Ended() {
		t.Error("nothing runs: it must end")
	}
	if s.Show(drained(0, 0)).Ended() {
		t.Error("nobody has asked it to end")
	}
	at = at.Show(drained(1, 1))
	if !strings.Contains(askedText(press(at, "q")), "1 running job") {
		t.Errorf("asked again: %s", askedText(press(at, "q")))
	}
	if _, out := press(at, "q").Key("y", "y"); !out.Quit {
		t.Error("y must quit now")
	}
	stays, out := press(at, "q").Key("s", "s")
	if a := action(out); a == nil || a.Verb != snapshot.Undrain || stays.Show(drained(0, 0)).Ended() {
		t.Errorf("s leads to %+v", out)
	}
	// An agent that another client has drained stays drained.
	before := s.Show(drained(1, 1))
	at, out = press(before, "q").Key("f", "f")
	if len(out.Actions) > 0 || !at.Show(drained(0, 0)).Ended() {
		t.Errorf("f on a drained agent leads to %+v", out)
	}
	if _, out := press(at, "q").Key("s", "s"); len(out.Actions) > 0 {
		t.Error("the drain of another was ended")
	}
}

func TestDoctorKey(t *testing.T) {
	t.Parallel()
	s, out := shown(testSnapshot(), widget.Caps{}).Key("D", "D")
	if !slices.Equal(out.Run, []string{"doctor"}) || s.overlay != (consolePane{}) {
		t.Errorf("runs %q, shows %T", out.Run, s.overlay)
	}
}
