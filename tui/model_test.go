package tui

import (
	"errors"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/tui/screen"

	tea "charm.land/bubbletea/v2"
)

// TestRefresh: R does not wait for the next retry, and at most one request is in flight.
func TestRefresh(t *testing.T) {
	t.Parallel()
	if _, out := shown(new(snapshot.Snapshot)).Key("R", "R"); !out.Refresh {
		t.Fatalf("got %+v", out)
	}
	m := &model{retry: retryMax}
	m.pause(time.Hour)
	if m.resume(m.turn-1) != nil {
		t.Error("a pause of before has its say")
	}
	first := m.turn
	if m.follow(screen.Outcome{Refresh: true}) == nil || m.paused || m.retry != retryMin {
		t.Errorf("it waits still: %+v", m)
	}
	if m.resume(first) != nil {
		t.Error("the pause that was cut short asks once more")
	}
	if m.resume(m.turn) != nil {
		t.Error("two questions are on the way")
	}
	m.pause(time.Hour)
	if m.resume(m.turn) == nil {
		t.Error("the end of a pause does not ask")
	}
}

// TestModelQuitsAndReportsErrors: the model quits with the snapshot that shows no running job,
// and reports failures of actions and of the source as issues.
func TestModelQuitsAndReportsErrors(t *testing.T) {
	t.Parallel()
	s := shown(working())
	s.Source = screen.Standalone
	m := &model{src: new(noSource), state: press(s, "q", "f")}
	idle := working()
	idle.Agent.Draining, idle.Agent.Claims, idle.Agent.Busy = noon, 0, 1
	if m.update(snapshotMsg{idle}); !m.paused {
		t.Fatal("it does not go on while a job runs")
	}
	idle.Agent.Busy = 0
	if cmd := m.update(snapshotMsg{idle}); cmd == nil || cmd() != tea.Quit() {
		t.Error("nothing runs: it must end")
	}
	m = &model{src: new(noSource), state: s}
	m.update(actedMsg{errors.New("not \x1b[31mallowed")})
	m.update(sourceErrorMsg{errors.New("no daemon")})
	if m.state.Gone != "no daemon" {
		t.Errorf("gone %q", m.state.Gone)
	}
	if frame := screen.Render(m.state, 120, 24, m.state.Caps); !strings.Contains(frame, "e errors 2") ||
		!strings.Contains(frame, "not [31mallowed") {
		t.Errorf("the failures are not on the screen:\n%s", frame)
	}
}

// TestLinksOf: links are not sent to terminals that may print them, nor when the user disables
// them.
func TestLinksOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{map[string]string{"TERM": "xterm-256color"}, true}, {map[string]string{"TERM": "tmux-256color"}, true},
		{map[string]string{"TERM": "foot"}, true},
		{map[string]string{"TERM": "xterm", "FORCE_HYPERLINK": "0"}, false}, {map[string]string{"TERM": "xterm", "FORCE_HYPERLINK": "1"}, true},
		{map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false}, {map[string]string{"TERM": "xterm", "LANG": "C"}, false},
		{map[string]string{"TERM": "linux"}, false}, {map[string]string{"TERM": "dumb"}, false}, {map[string]string{}, false},
		{map[string]string{"TERM": "vt220"}, false}, {map[string]string{"TERM": "vt102-am"}, false},
	} {
		env := func(name string) string {
			if v, ok := c.env[name]; ok || name != "LANG" {
				return v
			}
			return "C.UTF-8"
		}
		if got := capsOf(Options{Env: env}).Linked(); got != c.want {
			t.Errorf("%v: links %v", c.env, got)
		}
	}
}

// TestModelSchedulesRetry: the banner counts down to the time of the retry.
func TestModelSchedulesRetry(t *testing.T) {
	t.Parallel()
	m := &model{src: new(noSource), state: shown(working()), retry: 2 * time.Second}
	before := time.Now()
	m.update(sourceErrorMsg{errors.New("no daemon")})
	if left := m.state.Again.Sub(before); left < 2*time.Second || left > 3*time.Second {
		t.Errorf("next try after %s, want 2s", left)
	}
	if m.resume(m.turn); !m.state.Again.IsZero() {
		t.Errorf("while it asks: %s", m.state.Again)
	}
}
