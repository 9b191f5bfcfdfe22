package tui

import (
	"errors"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
)

// TestRefresh: R does not wait for the next try, and never has two of them on the
// way.
func TestRefresh(t *testing.T) {
	t.Parallel()
	s, out := shown(picture(), Caps{}).Key("R", "R")
	if !out.Refresh || s.toast == "" {
		t.Fatalf("got %+v, said %q", out, s.toast)
	}
	m := &model{retry: retryMax}
	m.pause(time.Hour)
	if m.resume(m.turn-1) != nil {
		t.Error("a pause of before has its say")
	}
	first := m.turn
	if m.follow(Outcome{Refresh: true}) == nil || m.paused || m.retry != retryMin {
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

func TestDoctorKey(t *testing.T) {
	t.Parallel()
	s, out := shown(picture(), Caps{}).Key("D", "D")
	if out.Copy != "limpet doctor" || s.toast != "in another terminal: limpet doctor" {
		t.Errorf("copied %q, said %q", out.Copy, s.toast)
	}
}

// TestModelLeavesAndTells: the end that a person waits for comes with the picture
// that shows it, and what an action or the source fails with is an error to read.
func TestModelLeavesAndTells(t *testing.T) {
	t.Parallel()
	s := shown(picture(), Caps{})
	s.Source = Standalone
	m := &model{src: &archive{}, state: press(s, "q", "f")}
	idle := picture()
	idle.Agent.Draining, idle.Agent.Claims, idle.Agent.Busy = noon, 0, 1
	if m.update(pictureMsg{idle}); !m.paused {
		t.Fatal("it does not go on while a job runs")
	}
	idle.Agent.Busy = 0
	if cmd := m.update(pictureMsg{idle}); cmd == nil || cmd() != tea.Quit() {
		t.Error("nothing runs: it must end")
	}
	m = &model{src: &archive{}, state: s}
	m.update(actedMsg{errors.New("not \x1b[31mallowed")})
	m.update(goneMsg{errors.New("no daemon")})
	if n := m.state.issues.unread(); n != 4 || m.state.toast != "not [31mallowed" || m.state.Gone != "no daemon" {
		t.Errorf("%d unread, said %q, gone %q", n, m.state.toast, m.state.Gone)
	}
}
