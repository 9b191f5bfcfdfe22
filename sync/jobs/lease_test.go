package jobs

import (
	"strings"
	"testing"
	"time"
)

func TestTermsRefuseUnsafeRelations(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name          string
		expiry, renew time.Duration
		refusal       string
	}{
		{"defaults", DefaultExpiry, DefaultRenew, ""},
		{"just three renewals", 30 * time.Second, 10 * time.Second, ""},
		{"equal, as Grafana once shipped", 30 * time.Second, 30 * time.Second, "at least 3 times"},
		{"a little less than three", 29 * time.Second, 10 * time.Second, "at least 3 times"},
		{"zero", 0, 0, "must be positive"},
		{"negative", -time.Minute, time.Second, "must be positive"},
		{"faster than the clock's precision", time.Minute, time.Millisecond, "below 1s"},
	}
	for _, c := range cases {
		err := terms{c.expiry, c.renew}.validate()
		if c.refusal == "" && err != nil || c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTermsLeaveRoomForRetries(t *testing.T) {
	t.Parallel()
	for _, c := range []terms{{60 * time.Second, 10 * time.Second}, {30 * time.Second, 10 * time.Second}, {9 * time.Second, 3 * time.Second}, {3 * time.Second, time.Second}} {
		if c.giveUp() >= c.expiry || c.giveUp()+c.clockError() > c.expiry {
			t.Errorf("%v: an owner with the largest clock error works on after its claim has expired", c)
		}
		if c.callTimeout() > c.giveUp()-c.renew {
			t.Errorf("%v: one call of %s may outlast the margin %s", c, c.callTimeout(), c.giveUp()-c.renew)
		}
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	l := newLease(terms{60 * time.Second, 10 * time.Second}, momentOf(t0))
	steps := []struct {
		name  string
		at    time.Duration
		do    func(now time.Time)
		next  time.Duration
		trust trust
	}{
		{"fresh", 0, nil, 10 * time.Second, good},
		{"renewed on time", 10 * time.Second, func(now time.Time) { l.renewed(momentOf(now)) }, 20 * time.Second, good},
		{"failed once", 21 * time.Second, func(now time.Time) { l.failed(now, 0) }, 21*time.Second + 1250*time.Millisecond, good},
		{"failed twice", 23 * time.Second, func(now time.Time) { l.failed(now, 0) }, 23*time.Second + 2500*time.Millisecond, good},
		{"the server asks for more", 26 * time.Second, func(now time.Time) { l.failed(now, 15*time.Second) }, 41 * time.Second, good},
		{"just before the deadline", 50*time.Second - 1, nil, 41 * time.Second, good},
		{"at two thirds of the expiry", 50 * time.Second, nil, 41 * time.Second, ceased},
		{"a late answer counts from when it was sent", 51 * time.Second, func(time.Time) { l.renewed(momentOf(at(41 * time.Second))) }, 51 * time.Second, good},
		{"an older answer changes nothing", 52 * time.Second, func(time.Time) { l.renewed(momentOf(at(30 * time.Second))) }, 51 * time.Second, good},
	}
	for _, s := range steps {
		if s.do != nil {
			s.do(at(s.at))
		}
		if got := l.next.Sub(t0); got != s.next {
			t.Errorf("%s: next renewal at %s, want %s", s.name, got, s.next)
		}
		if got := l.trust(momentOf(at(s.at))); got != s.trust {
			t.Errorf("%s: trust %d, want %d", s.name, got, s.trust)
		}
	}
	for range 20 {
		l.failed(t0, 0)
	}
	if d := l.next.Sub(t0); d != 10*time.Second {
		t.Errorf("the pause between failed renewals grows to %s", d)
	}
}

// TestLeaseDoubtsAfterSleep: the monotonic clock stands still while a host is
// suspended, the wall clock does not.
func TestLeaseDoubtsAfterSleep(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	l := newLease(terms{60 * time.Second, 10 * time.Second}, momentOf(begin))
	if got := l.trust(momentOf(begin.Add(39 * time.Second))); got != good {
		t.Errorf("awake for 39 s: %d", got)
	}
	if got := l.trust(momentOf(begin.Add(40 * time.Second))); got != ceased {
		t.Errorf("awake for 40 s: %d", got)
	}
	l.wall = l.wall.Add(-time.Hour)
	if got := l.trust(momentOf(begin.Add(time.Second))); got != doubt {
		t.Errorf("an hour passed on the wall clock alone: %d", got)
	}
	l.renewed(momentOf(begin.Add(2 * time.Second)))
	if got := l.trust(momentOf(begin.Add(3 * time.Second))); got != good {
		t.Errorf("after a renewal: %d", got)
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		th   throttle
		due  time.Duration
		none bool
	}{
		{"nothing changed", throttle{last: t0}, 0, true},
		{"message", throttle{last: t0, message: true}, 500 * time.Millisecond, false},
		{"record", throttle{last: t0, record: true}, 5 * time.Second, false},
		{"both", throttle{last: t0, message: true, record: true}, 500 * time.Millisecond, false},
	}
	for _, c := range cases {
		due, some := c.th.due()
		if some == c.none || some && due.Sub(t0) != c.due {
			t.Errorf("%s: due %s, %t", c.name, due.Sub(t0), some)
		}
	}
	th := throttle{last: t0, message: true, record: true}
	th.begin(at(time.Second))
	if _, some := th.due(); some {
		t.Error("due after a write that carried everything")
	}
	th.again()
	if due, some := th.due(); !some || due.Sub(t0) != 6*time.Second {
		t.Errorf("a write that did not arrive is due %s, %t", due.Sub(t0), some)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	wants := map[int]time.Duration{0: 0, 1: 0, 2: 5 * time.Second, 3: 20 * time.Second, 4: 80 * time.Second, 5: 5 * time.Minute, 1000: 5 * time.Minute}
	for attempt, want := range wants {
		if got := attemptDelay(attempt); got != want {
			t.Errorf("attempt %d rests %s, want %s", attempt, got, want)
		}
	}
	last := time.Duration(0)
	for try := 1; try < 100; try++ {
		d := retryDelay(try)
		if d < last || d > 30*time.Second || d < 250*time.Millisecond {
			t.Errorf("try %d rests %s after %s", try, d, last)
		}
		last = d
	}
	for range 1000 {
		if d := (machine{}).jitter(10 * time.Second); d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("jitter made 10 s to %s", d)
		}
	}
}
