package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func shut() blocked {
	return blocked{now: noon, canCopy: true, works: true, holder: Holder{Path: "/var/lib/limpet/limpet.db", PID: 4121, Version: "0.9", Since: noon.Add(-5 * time.Hour), Socket: "/var/lib/limpet/limpet.sock"}}
}

func keysInto(b blocked, keys ...string) blocked {
	for _, k := range keys {
		b, _, _, _ = b.press(k)
	}
	return b
}

func TestBlockedScreen(t *testing.T) {
	t.Parallel()
	plain := Caps{ASCII: true, Mono: true}
	api := shut()
	api.holder.Socket, api.canCopy = "", false
	unknown := blocked{now: noon, holder: Holder{Path: "/tmp/limpet.db"}}
	waiting, _ := keysInto(shut(), "w").looked(Look{}, noon.Add(7*time.Second))
	free, _ := api.looked(Look{Free: true}, noon)
	failed := keysInto(shut(), "o")
	failed.copying, failed.failed = false, "no daemon answers on the socket: connection refused"
	evil := shut()
	evil.holder = Holder{Path: "/\x1b]0;pwn\x07" + strings.Repeat("漢", 90), Version: "\x1b[31m0.9\n\u202e", PID: 1, Socket: "s"}.clean()
	for name, b := range map[string]blocked{"socket": shut(), "api": api, "unknown": unknown, "waiting": waiting, "free": free, "asking": keysInto(shut(), "o"), "failed": failed, "hostile": evil} {
		for _, size := range [][2]int{{80, 24}, {140, 40}, {40, 10}, {20, 3}, {1, 1}} {
			for _, caps := range []Caps{plain, {}} {
				got := renderBlocked(b, size[0], size[1], caps)
				check(t, got, size[0], size[1], caps)
			}
		}
		if name == "hostile" {
			continue
		}
		for _, size := range [][2]int{{80, 24}, {140, 40}} {
			golden(t, fmt.Sprintf("blocked-%s-%dx%d", name, size[0], size[1]), renderBlocked(b, size[0], size[1], plain))
		}
	}
}

// TestBlockedKeys: nothing is opened that the person has not asked for, but who
// answers is shown at once.
func TestBlockedKeys(t *testing.T) {
	t.Parallel()
	free, answers, held := Look{Free: true}, Look{Answers: true}, Look{Holder: &Holder{PID: 5}}
	if _, enter := shut().looked(answers, noon); !enter {
		t.Error("a daemon that answers is not shown")
	}
	if b, enter := shut().looked(free, noon); enter || !b.free {
		t.Error("a file that nobody waits for is opened")
	}
	if _, enter := keysInto(shut(), "w").looked(free, noon); !enter {
		t.Error("who waits does not get in")
	}
	b, enter := keysInto(shut(), "w").looked(held, noon)
	if enter || b.holder.PID != 5 {
		t.Errorf("in: %v, holder %d", enter, b.holder.PID)
	}
	now, _ := shut().looked(free, noon)
	if _, _, answer, ends := now.press("w"); !ends || answer != Enter {
		t.Errorf("w on a free file: %v %v", answer, ends)
	}
	for _, key := range []string{"q", "ctrl+c", "esc"} {
		if _, _, answer, ends := shut().press(key); !ends || answer != Leave {
			t.Errorf("%s: %v %v", key, answer, ends)
		}
	}
	if _, copies, _, ends := shut().press("o"); !copies || ends {
		t.Error("o asks for no copy")
	}
	if _, copies, _, _ := keysInto(shut(), "o").press("o"); copies {
		t.Error("a copy is asked for twice")
	}
	none := shut()
	none.canCopy = false
	if _, copies, _, _ := none.press("o"); copies || strings.Contains(renderBlocked(none, 80, 24, Caps{}), "copy") {
		t.Error("a copy that cannot be had is offered")
	}
	if _, copies, _, ends := shut().press("enter"); copies || ends {
		t.Error("Enter does something")
	}
}

// TestOnlyLooking: a dashboard that only looks asks for nothing and says why, and
// what is shown of a file says that no agent works on it.
func TestOnlyLooking(t *testing.T) {
	t.Parallel()
	looks := shown(picture(), Caps{ASCII: true, Mono: true})
	looks.ReadOnly = true
	left := picture()
	left.AsOf = noon.Add(-6 * time.Minute)
	disk := shown(left, Caps{ASCII: true, Mono: true})
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
		if got := Render(now, 80, 24, now.Caps); !strings.Contains(got, why) || strings.Contains(got, "p pull  ") {
			t.Errorf("want %q and no hints to act:\n%s", why, got)
		}
	}
	if got := Render(disk, 120, 24, disk.Caps); !strings.Contains(got, "No agent works on this file; shown as of") || !strings.Contains(got, "no agent") || !strings.Contains(got, FromDisk) {
		t.Errorf("%s", got)
	}
}

// TestNoteOfTheSource: what there is to know of the source stands where nothing
// else has to be said.
func TestNoteOfTheSource(t *testing.T) {
	t.Parallel()
	quiet := picture()
	quiet.Events, quiet.Repos[1].Healthy = nil, true
	s := shown(quiet, Caps{ASCII: true, Mono: true})
	s.Note = "daemon 0.9, this 1.0: reduced view"
	if got := Render(s, 80, 24, s.Caps); !strings.Contains(got, "! daemon 0.9, this 1.0: reduced view") {
		t.Errorf("%s", got)
	}
	quiet.Problem = "the token is refused"
	s = s.Show(quiet)
	if got := Render(s, 80, 24, s.Caps); strings.Contains(got, "reduced view") || !strings.Contains(got, "the token is refused") {
		t.Errorf("%s", got)
	}
}
