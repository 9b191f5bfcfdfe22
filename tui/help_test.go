package tui

import (
	"strings"
	"testing"

	"limpet/sync/snapshot"
)

// boxes are the keys that lead to what stands before a screen.
var boxes = map[string][]string{
	"help search": {"?", "p", "u", "l", "down"}, "no such key": {"?", "z", "z", "z"},
	"retry": {"end", "r"}, "quit": {"q"},
	"sort": {"o", "down"}, "sorted": {"o", "down", "enter", "2"}, "marks": {"*"}, "marks asked": {"*", "P"}, "zoom": {"z"}, "wide": {"w"}, "field": {"/", "s", "t", "tab", "z", "enter"},
	"errors": {"e"}, "palette": {":"}, "palette found": {":", "p", "u", "down"}, "palette none": {":", "z", "z", "z", "z"},
}

// places are states of each screen, with and without something under the cursor.
func places() map[string]State {
	down := picture()
	down.API.Up = false
	lives := lives()
	out := map[string]State{}
	for name, s := range map[string]State{"live": shown(picture(), Caps{}), "mono": shown(picture(), Caps{Mono: true}), "lives": shown(&lives, Caps{}), "down": shown(down, Caps{}), "empty": NewState(Standalone, Caps{}, noon)} {
		for screen, keys := range map[string][]string{"overview": nil, "pane": {"tab"}, "jobs": {"2"}, "last job": {"2", "end"}, "repos": {"3"}, "detail": {"enter"}, "repo": {"3", "down", "enter"}} {
			out[name+" "+screen] = press(s, keys...)
		}
	}
	return out
}

// TestOneSourceOfRefusals: what help marks, what the hints leave out and what a
// key says when it does nothing are the same everywhere.
func TestOneSourceOfRefusals(t *testing.T) {
	t.Parallel()
	refused := 0
	for name, s := range places() {
		frame := strings.Split(strip(Render(s, 200, 40, Caps{})), "\n")
		hints := "  " + frame[len(frame)-1]
		whole := strip(Render(press(s, "?"), 200, 60, Caps{}))
		for _, b := range bindings {
			if !b.here(s) {
				continue
			}
			why := b.refusal(s)
			if b.group != "MOVE" && strings.Contains(whole, "-"+b.label+" ") != (why != "") {
				t.Errorf("%s: help marks %s, %q:\n%s", name, b.label, why, whole)
			}
			after, out := s.Key(b.keys[0], "")
			if why != "" {
				refused++
				if after.toast != why || !after.toastBad || len(out.Actions) > 0 || after.overlay != nil {
					t.Errorf("%s: %s is refused (%s), and says %q", name, b.label, why, after.toast)
				}
				if len(b.keys[0]) == 1 && strings.Contains(hints, "  "+b.keys[0]+" ") {
					t.Errorf("%s: the hints offer %s, which does nothing:%s", name, b.label, hints)
				}
			} else if after.toastBad {
				t.Errorf("%s: %s says %q, and help does not know", name, b.label, after.toast)
			}
			listed := press(s, append([]string{"?"}, strings.Split(b.text, "")...)...)
			box := strip(Render(listed, 140, 40, Caps{}))
			if marked := strings.Contains(box, "-"+b.label+" "); why != "" && !marked && !strings.Contains(box, why[:min(len(why), 30)]) || why == "" && marked {
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
	s := shown(picture(), Caps{})
	t.Run("Enter does what the key under the cursor does", func(t *testing.T) {
		at, out := press(s, "?", "p", "u", "l", "l").Key("enter", "")
		if a := action(out); a == nil || a.Verb != Pull || at.overlay != nil {
			t.Errorf("got %+v, %+v", a, at.overlay)
		}
		if at := press(s, "?", "p", "u", "l", "l", "down", "enter"); !strings.Contains(askedText(at), "Full pull") {
			t.Errorf("the second is %q", askedText(at))
		}
		if at := press(s, "?", "r", "e", "t", "enter"); !strings.Contains(at.toast, "runs now") {
			t.Errorf("what does nothing says %q", at.toast)
		}
	})
	t.Run("letters are text and Esc takes it away first", func(t *testing.T) {
		at := press(s, "?", "j", "k", "q")
		if h, _ := at.overlay.(help); h.text != "jkq" {
			t.Fatalf("typed %q", h.text)
		}
		at = press(at, "esc")
		if h, ok := at.overlay.(help); !ok || h.text != "" {
			t.Fatal("the first Esc must clear the text")
		}
		if at = press(at, "esc"); at.overlay != nil {
			t.Error("the second Esc must close")
		}
		if at = press(s, "?", "?"); at.overlay != nil {
			t.Error("? must close what it has opened")
		}
	})
	t.Run("every key of the screen can be reached at each size", func(t *testing.T) {
		for _, size := range [][2]int{{40, 10}, {60, 20}, {80, 24}, {140, 40}} {
			at := press(s, "?")
			for range bindings {
				h := at.overlay.(help)
				b := h.found(at)[h.at]
				frame := strip(Render(at, size[0], size[1], Caps{}))
				if !strings.Contains(frame, unicodeGlyphs.cursor+b.label) {
					t.Fatalf("%v: no cursor on %s:\n%s", size, b.label, frame)
				}
				at = press(at, "down")
			}
		}
	})
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	s := shown(picture(), Caps{})
	t.Run("a full pull names what it touches", func(t *testing.T) {
		said := askedText(press(s, "P"))
		for _, word := range []string{"288 objects", "12 folders", "276 dashboards", "team-dash-sync", "working now", "lost"} {
			if !strings.Contains(said, word) {
				t.Errorf("no word of %q: %s", word, said)
			}
		}
		if said := askedText(press(s, "3", "down", "down", "P")); strings.Contains(said, "working now") {
			t.Errorf("no pull works on lab-west: %s", said)
		}
	})
	t.Run("from 1,000 objects on the name has to be typed", func(t *testing.T) {
		for resources, typed := range map[int64]bool{999: false, 1000: true} {
			snap := picture()
			snap.Repos[0].Resources = resources
			at := press(shown(snap, Caps{}), "3", "P")
			if q, _ := at.confirmOpen(); (q.name != "") != typed {
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
			snap := picture()
			snap.Jobs[6].Action = kind
			if q, _ := press(shown(snap, Caps{}), "end", "r").confirmOpen(); (q.name != "") != typed {
				t.Errorf("%s: name %q", kind, q.name)
			}
		}
	})
	t.Run("a line that is typed", func(t *testing.T) {
		line := ""
		for _, k := range []struct{ key, text, want string }{{"a", "a", "a"}, {"space", " ", "a "}, {"é", "é\x1b", "a é"}, {"backspace", "", "a "}, {"b", "bc", "a bc"}, {"ctrl+w", "", "a "}, {"ctrl+w", "", ""}, {"x", "x", "x"}, {"ctrl+u", "", ""}, {"f1", "", ""}} {
			if line = edit(line, k.key, k.text); line != k.want {
				t.Errorf("%s: %q, want %q", k.key, line, k.want)
			}
		}
		if got := edit(strings.Repeat("é", maxLine), "x", "x"); got != strings.Repeat("é", maxLine) {
			t.Error("a line has no end")
		}
	})
}

// TestLeaving: finish claims nothing new and ends when nothing runs any more;
// who stays after all has jobs claimed again.
func TestLeaving(t *testing.T) {
	t.Parallel()
	s := shown(picture(), Caps{})
	s.Source = Standalone
	at, out := press(s, "q").Key("f", "f")
	if a := action(out); a == nil || a.Verb != Drain || out.Quit || at.Ended() {
		t.Fatalf("f leads to %+v", out)
	}
	drained := func(busy, claims int) *snapshot.Snapshot {
		snap := picture()
		snap.Agent.Draining, snap.Agent.Busy, snap.Agent.Claims = noon, busy, claims
		return snap
	}
	idle := picture()
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
	if !strings.Contains(askedText(press(at, "q")), "1 job to go") {
		t.Errorf("asked again: %s", askedText(press(at, "q")))
	}
	if _, out := press(at, "q").Key("y", "y"); !out.Quit {
		t.Error("y must quit now")
	}
	stays, out := press(at, "q").Key("s", "s")
	if a := action(out); a == nil || a.Verb != Undrain || stays.Show(drained(0, 0)).Ended() {
		t.Errorf("s leads to %+v", out)
	}
	// Somebody else has drained the agent: that is theirs to end.
	before := s.Show(drained(1, 1))
	at, out = press(before, "q").Key("f", "f")
	if len(out.Actions) > 0 || !at.Show(drained(0, 0)).Ended() {
		t.Errorf("f on a drained agent leads to %+v", out)
	}
	if _, out := press(at, "q").Key("s", "s"); len(out.Actions) > 0 {
		t.Error("the drain of another was ended")
	}
}
