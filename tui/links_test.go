package tui

import (
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
)

// TestFailingConnection: one that its host does not take is an error that waits for a
// person, with the command that says more, and stands on the agent's screen. It is told
// once, and once more when the reason is another.
func TestFailingConnection(t *testing.T) {
	t.Parallel()
	caps := Caps{Mono: true, ASCII: true}
	ill := func(why string) *snapshot.Snapshot {
		snap := picture()
		snap.IllConnections = []snapshot.Connection{{Namespace: "default", Name: "gh\x1b[2J", Checked: noon.Add(-time.Minute), Message: why}}
		return snap
	}
	s := shown(picture(), caps)
	before := len(s.issues.list)
	s = s.Show(ill("401 Bad credentials"))
	s = s.Show(ill("401 Bad credentials"))
	if n := len(s.issues.list) - before; n != 1 {
		t.Fatalf("%d errors of one Connection", n)
	}
	if pane := Render(press(s, "e"), 100, 40, caps); !strings.Contains(pane, "gh[2J: Connection: 401 Bad credentials") || !strings.Contains(pane, "limpet connection test 'gh[2J'") {
		t.Errorf("the errors:\n%s", pane)
	}
	{
		at := press(s, "e")
		at.overlay = errorsPane{id: s.issues.list[len(s.issues.list)-1].id}
		if at = press(at, "enter"); at.screen != screenAgent || at.overlay != nil {
			t.Errorf("it opens %v", at.screen)
		}
	}
	agent := settle(t, press(s, "5"), &archive{care: kept()})
	if frame := Render(agent, 140, 60, caps); !strings.Contains(frame, "x gh[2J: 401 Bad credentials") {
		t.Errorf("the agent:\n%s", frame)
	}
	if s = s.Show(ill("403 suspended")); len(s.issues.list)-before != 2 {
		t.Error("another reason is not told")
	}
	if s = s.Show(picture()).Show(ill("403 suspended")); s.issues.list[len(s.issues.list)-1].times != 2 {
		t.Error("one that fails again is not told again")
	}
}
