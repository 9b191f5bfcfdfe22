package lease

import (
	"strings"
	"testing"
	"time"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func TestTermsRefuseUnsafeRelations(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name          string
		expiry, renew time.Duration
		refusal       string
	}{
		{"defaults", time.Minute, 10 * time.Second, ""},
		{"just three renewals", 30 * time.Second, 10 * time.Second, ""},
		{"equal, as Grafana once shipped", 30 * time.Second, 30 * time.Second, "at least 3 times"},
		{"a little less than three", 29 * time.Second, 10 * time.Second, "at least 3 times"},
		{"zero", 0, 0, "must be positive"},
		{"negative", -time.Minute, time.Second, "must be positive"},
		{"faster than the clock's precision", time.Minute, time.Millisecond, "below 1s"},
	}
	for _, c := range cases {
		err := Terms{c.expiry, c.renew}.Validate()
		if c.refusal == "" && err != nil || c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTermsLeaveRoomForRetries(t *testing.T) {
	t.Parallel()
	for _, c := range []Terms{{60 * time.Second, 10 * time.Second}, {30 * time.Second, 10 * time.Second}, {9 * time.Second, 3 * time.Second},
		{3 * time.Second, time.Second}} {
		if c.GiveUp() >= c.Expiry || c.GiveUp()+c.ClockError() > c.Expiry {
			t.Errorf("%v: an owner with the largest clock error works on after its claim has expired", c)
		}
		if c.CallTimeout() > c.GiveUp()-c.Renew {
			t.Errorf("%v: one call of %s may outlast the margin %s", c, c.CallTimeout(), c.GiveUp()-c.Renew)
		}
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	l := New(Terms{60 * time.Second, 10 * time.Second}, ReadingOf(t0))
	steps := []struct {
		name  string
		at    time.Duration
		do    func(now time.Time)
		next  time.Duration
		trust Trust
	}{
		{"fresh", 0, nil, 10 * time.Second, Valid},
		{"renewed on time", 10 * time.Second, func(now time.Time) { l.Renewed(ReadingOf(now)) }, 20 * time.Second, Valid},
		{"failed once", 21 * time.Second, func(now time.Time) { l.Failed(now, 0) }, 21*time.Second + 1250*time.Millisecond, Valid},
		{"failed twice", 23 * time.Second, func(now time.Time) { l.Failed(now, 0) }, 23*time.Second + 2500*time.Millisecond, Valid},
		{"the server asks for more", 26 * time.Second, func(now time.Time) { l.Failed(now, 15*time.Second) }, 41 * time.Second, Valid},
		{"just before the deadline", 50*time.Second - 1, nil, 41 * time.Second, Valid},
		{"at two thirds of the expiry", 50 * time.Second, nil, 41 * time.Second, Expired},
		{"a late answer counts from when it was sent", 51 * time.Second, func(time.Time) { l.Renewed(ReadingOf(at(41 * time.Second))) },
			51 * time.Second, Valid},
		{"an older answer changes nothing", 52 * time.Second, func(time.Time) { l.Renewed(ReadingOf(at(30 * time.Second))) }, 51 * time.Second,
			Valid},
	}
	for _, s := range steps {
		if s.do != nil {
			s.do(at(s.at))
		}
		if got := l.next.Sub(t0); got != s.next {
			t.Errorf("%s: next renewal at %s, want %s", s.name, got, s.next)
		}
		if got := l.Trust(ReadingOf(at(s.at))); got != s.trust {
			t.Errorf("%s: trust %d, want %d", s.name, got, s.trust)
		}
	}
	for range 20 {
		l.Failed(t0, 0)
	}
	if d := l.next.Sub(t0); d != 10*time.Second {
		t.Errorf("the pause between failed renewals grows to %s", d)
	}
}

// TestLeaseDoubtsAfterSleep: the monotonic clock stands still while a host is suspended, the wall
// clock does not.
func TestLeaseDoubtsAfterSleep(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	l := New(Terms{60 * time.Second, 10 * time.Second}, ReadingOf(begin))
	if got := l.Trust(ReadingOf(begin.Add(39 * time.Second))); got != Valid {
		t.Errorf("awake for 39 s: %d", got)
	}
	if got := l.Trust(ReadingOf(begin.Add(40 * time.Second))); got != Expired {
		t.Errorf("awake for 40 s: %d", got)
	}
	l.confirmed.Wall = l.confirmed.Wall.Add(-time.Hour)
	if got := l.Trust(ReadingOf(begin.Add(time.Second))); got != Uncertain {
		t.Errorf("an hour passed on the wall clock alone: %d", got)
	}
	l.Renewed(ReadingOf(begin.Add(2 * time.Second)))
	if got := l.Trust(ReadingOf(begin.Add(3 * time.Second))); got != Valid {
		t.Errorf("after a renewal: %d", got)
	}
}

// TestClaimsOfOthers: a claim is dead for others only after its owner has stopped, whatever both
// clocks say, and its owner sees that before they do.
func TestClaimsOfOthers(t *testing.T) {
	t.Parallel()
	terms := Terms{Expiry: time.Minute, Renew: 10 * time.Second}
	cases := []struct {
		name   string
		age    time.Duration
		alive  time.Duration
		lapsed bool
	}{
		{"fresh", 0, 70 * time.Second, false},
		{"at two thirds of the expiry", 40 * time.Second, 30 * time.Second, false},
		{"as old as a slow clock allows", 50 * time.Second, 20 * time.Second, true},
		{"expired with the largest clock error", 70 * time.Second, 0, true},
		{"a little in the future", -30 * time.Second, 100 * time.Second, false},
		{"far in the future", -61 * time.Second, 0, true},
	}
	for _, c := range cases {
		now := t0.UnixMilli()
		claimed := now - c.age.Milliseconds()
		if alive, lapsed := terms.Alive(claimed, now), terms.Lapsed(claimed, now); alive != c.alive || lapsed != c.lapsed {
			t.Errorf("%s: alive for %s, lapsed %t", c.name, alive, lapsed)
		}
	}
}
