package tui

import (
	"testing"
	"time"
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
