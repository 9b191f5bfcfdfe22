package tui

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// away is a picture of an agent whose API has not answered for six minutes.
func away() State {
	snap := picture()
	snap.API.Up, snap.API.Error, snap.API.Since = false, "dial tcp 10.0.3.7:443: i/o timeout", noon.Add(-372*time.Second)
	snap.API.Next, snap.API.Tries = noon.Add(10500*time.Millisecond), 7
	return shown(snap, Caps{Mono: true, ASCII: true})
}

// TestBannerCountsDown: who waits sees for how long still, at each width, whole.
func TestBannerCountsDown(t *testing.T) {
	t.Parallel()
	s := away()
	line := func(s State, w, at int) string {
		return strings.TrimRight(strings.Split(Render(s, w, 24, s.Caps), "\n")[at], " ")
	}
	for _, tt := range []struct {
		w     int
		later time.Duration
		want  string
	}{
		{80, 0, " ! OFFLINE since 13:56:25Z, 6m ago, shown as of then. Next try in 11s, R now"},
		{80, 2 * time.Second, " ! OFFLINE since 13:56:25Z, 6m ago, shown as of then. Next try in 9s, R now"},
		{80, 10 * time.Second, " ! OFFLINE since 13:56:25Z, 6m ago, shown as of then. Next try in 1s, R now"},
		{80, 11 * time.Second, " ! OFFLINE since 13:56:25Z, 6m ago, shown as of then. Trying now"},
		{70, 0, " ! OFFLINE since 13:56:25Z, 6m ago. Next try in 11s, R now"},
		{40, 0, " ! OFFLINE. Next try in 11s, R now"},
	} {
		at := s
		at.Now = noon.Add(tt.later)
		if got := line(at, tt.w, 1); got != tt.want {
			t.Errorf("%d cells, %s later: %q, want %q", tt.w, tt.later, got, tt.want)
		}
	}
	for w := minWidth; w < 160; w++ {
		if got := line(s, w, 1); !strings.HasPrefix(got, " ! OFFLINE") || !strings.HasSuffix(got, "Next try in 11s, R now") {
			t.Errorf("%d cells: %q", w, got)
		}
	}
	s.issues = s.issues.markRead(len(s.issues.list))
	if got := line(s, 80, 22); got != " x dial tcp 10.0.3.7:443: i/o timeout, 7 tries; nothing is queued" {
		t.Errorf("the reason: %q", got)
	}
	if got := line(s, 80, 23); !strings.Contains(got, "R try now") || !strings.Contains(got, "D doctor") || strings.Contains(got, "p pull") {
		t.Errorf("the keys: %q", got)
	}
	old := away()
	old.Snap.API.Next, old.Snap.API.Tries = time.Time{}, 0
	if got := line(old, 80, 1); got != " ! OFFLINE since 13:56:25Z, 6m ago, shown as of then" {
		t.Errorf("of an older daemon: %q", got)
	}
	lost := shown(picture(), Caps{Mono: true, ASCII: true}).Lose("connection refused")
	if lost.Again = noon.Add(3 * time.Second); !strings.HasSuffix(line(lost, 80, 1), "14:02:37Z, 0s ago. Next try in 3s, R now") {
		t.Errorf("without a daemon: %q", line(lost, 80, 1))
	}
	lost.Source = FromDisk
	if got := line(lost, 140, 1); strings.Contains(got, "try") {
		t.Errorf("from disk: %q", got)
	}
}

// TestRetryNow: R asks the source at once, and through it an API that is away; one
// that answers is left alone, and who only looks asks for nothing.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	hurry := []Action{{Verb: Hurry}}
	readOnly, disk, gone := away(), away(), away().Lose("no daemon")
	readOnly.ReadOnly, disk.Source = true, FromDisk
	for name, tt := range map[string]struct {
		s    State
		want []Action
	}{"away": {away(), hurry}, "up": {shown(picture(), Caps{}), nil}, "read-only": {readOnly, nil}, "disk": {disk, nil}, "no daemon": {gone, nil}, "nothing yet": {NewState(Standalone, Caps{}, noon), nil}} {
		if _, out := tt.s.Key("R", "R"); !out.Refresh || !slices.Equal(out.Actions, tt.want) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestModelTellsOfItsNextTry: the clock of the retries is that of the banner.
func TestModelTellsOfItsNextTry(t *testing.T) {
	t.Parallel()
	m := &model{src: &archive{}, state: shown(picture(), Caps{}), retry: 2 * time.Second}
	before := time.Now()
	m.update(goneMsg{errors.New("no daemon")})
	if left := m.state.Again.Sub(before); left < 2*time.Second || left > 3*time.Second {
		t.Errorf("next try after %s, want 2s", left)
	}
	if m.resume(m.turn); !m.state.Again.IsZero() {
		t.Errorf("while it asks: %s", m.state.Again)
	}
}
