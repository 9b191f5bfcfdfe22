package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/tui/widget"
)

func shut() blocked {
	return blocked{now: noon, canCopy: true, works: true, holder: Holder{Path: "/var/lib/limpet/limpet.db", PID: 4121, Version: "0.9",
		Since: noon.Add(-5 * time.Hour), Socket: "/var/lib/limpet/limpet.sock"}}
}

func keysInto(b blocked, keys ...string) blocked {
	for _, k := range keys {
		b, _, _, _ = b.press(k)
	}
	return b
}

func TestBlockedScreen(t *testing.T) {
	t.Parallel()
	plain := widget.Caps{ASCII: true, Mono: true}
	api := shut()
	api.holder.Socket, api.canCopy = "", false
	unknown := blocked{now: noon, holder: Holder{Path: "/tmp/limpet.db"}}
	waiting, _ := keysInto(shut(), "w").applyLook(Look{}, noon.Add(7*time.Second))
	free, _ := api.applyLook(Look{Free: true}, noon)
	failed := keysInto(shut(), "o")
	failed.copying, failed.failed = false, "no daemon answers on the socket: connection refused"
	evil := shut()
	evil.holder = Holder{Path: "/\x1b]0;pwn\x07" + strings.Repeat("漢", 90), Version: "\x1b[31m0.9\n\u202e", PID: 1, Socket: "s"}.clean()
	for name, b := range map[string]blocked{"socket": shut(), "api": api, "unknown": unknown, "waiting": waiting, "free": free,
		"asking": keysInto(shut(), "o"), "failed": failed, "hostile": evil} {
		for _, size := range [][2]int{{80, 24}, {140, 40}, {40, 10}, {20, 3}, {1, 1}} {
			for _, caps := range []widget.Caps{plain, {}} {
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

// TestBlockedKeys: nothing opens without a key press, except a holder that answers.
func TestBlockedKeys(t *testing.T) {
	t.Parallel()
	free, answers, held := Look{Free: true}, Look{Answers: true}, Look{Holder: &Holder{PID: 5}}
	if _, enter := shut().applyLook(answers, noon); !enter {
		t.Error("a daemon that answers is not shown")
	}
	if b, enter := shut().applyLook(free, noon); enter || !b.free {
		t.Error("a file that nobody waits for is opened")
	}
	if _, enter := keysInto(shut(), "w").applyLook(free, noon); !enter {
		t.Error("who waits does not get in")
	}
	b, enter := keysInto(shut(), "w").applyLook(held, noon)
	if enter || b.holder.PID != 5 {
		t.Errorf("in: %v, holder %d", enter, b.holder.PID)
	}
	now, _ := shut().applyLook(free, noon)
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
	if _, copies, _, _ := none.press("o"); copies || strings.Contains(renderBlocked(none, 80, 24, widget.Caps{}), "copy") {
		t.Error("a copy that cannot be had is offered")
	}
	if _, copies, _, ends := shut().press("enter"); copies || ends {
		t.Error("Enter does something")
	}
}
