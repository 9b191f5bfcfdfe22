package jobs

import (
	"errors"
	"fmt"
	"time"
)

// A lease is a promise with an end. The claim label carries server time, for
// others to read; this agent judges its own lease by the time that has passed
// since the request of the last successful renewal was SENT, on the monotonic
// clock. It stops at two thirds of the expiry, so that it has ended its work
// before anybody else may begin. A lease does not fence: a write that left in
// time may land late, so every write has to be harmless when done twice.

// Minimal relations between the durations of a lease.
const (
	minRenewsPerExpiry = 3               // a renewal may fail and be repeated once before giving up
	minRenew           = 1 * time.Second // the claim label has millisecond precision, the Date header second precision
)

// terms are the durations of a lease.
type terms struct{ expiry, renew time.Duration }

func (t terms) validate() error {
	switch {
	case t.expiry <= 0 || t.renew <= 0:
		return errors.New("claim expiry and lease renewal interval must be positive")
	case t.renew < minRenew:
		return fmt.Errorf("lease renewal interval %s is below %s", t.renew, minRenew)
	case t.expiry < minRenewsPerExpiry*t.renew:
		return fmt.Errorf("claim expiry %s must be at least %d times the lease renewal interval %s", t.expiry, minRenewsPerExpiry, t.renew)
	}
	return nil
}

// giveUp is how long after the last renewal the work stops.
func (t terms) giveUp() time.Duration { return t.expiry * 2 / 3 }

// clockError is the largest error of the server clock that a claim may carry.
func (t terms) clockError() time.Duration { return t.expiry / 6 }

// callTimeout bounds one request about a held claim. Between a renewal that
// was due and the end of the lease there is room for three of them.
func (t terms) callTimeout() time.Duration { return min(t.renew, 10*time.Second) }

// trust is what a leaseholder may assume.
type trust int

const (
	good   trust = iota // write
	doubt               // look at the object before the next write
	ceased              // never write again
)

// lease is the state of one lease. It is told the time and does no I/O.
type lease struct {
	terms
	confirmed time.Time // when the last successful renewal was sent, with its monotonic reading
	wall      time.Time // the same moment by the wall clock alone
	next      time.Time // when the next renewal is due
	failures  int       // renewals failed in a row
}

func newLease(t terms, confirmed moment) lease {
	return lease{terms: t, confirmed: confirmed.Time, wall: confirmed.wall, next: confirmed.Add(t.renew)}
}

// renewed takes note of a success whose request was sent at the given time.
func (l *lease) renewed(sent moment) {
	if sent.After(l.confirmed) {
		l.confirmed, l.wall = sent.Time, sent.wall
	}
	l.next = l.confirmed.Add(l.renew)
	l.failures = 0
}

// failed takes note of a renewal that did not succeed. The next one comes
// sooner than usual, then ever later up to the usual interval, and not before
// the server wants it.
func (l *lease) failed(now time.Time, after time.Duration) {
	l.next = now.Add(max(after, doubled(l.renew/8, l.failures, l.renew)))
	l.failures++
}

// deadline is when the work has to stop unless a renewal succeeds.
func (l *lease) deadline() time.Time { return l.confirmed.Add(l.giveUp()) }

// trust judges the lease. The monotonic clock decides; the wall clock, which
// unlike it goes on while a host is suspended, can only raise doubt.
func (l *lease) trust(now moment) trust {
	if now.Sub(l.confirmed) >= l.giveUp() {
		return ceased
	}
	if now.wall.Sub(l.wall) >= l.giveUp() {
		return doubt
	}
	return good
}
