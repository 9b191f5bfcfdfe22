// Package lease holds the laws of a claim's lease. It is pure: the time is an argument, and it does
// no I/O.
//
// A lease is a promise with an end. The claim label carries server time, for others to read; this
// agent judges its own lease by the time that has passed since the request of the last successful
// renewal was SENT, on the monotonic clock. It stops at two thirds of the expiry, so that it has
// ended its work before any other agent may begin. A lease does not fence: a write that left in
// time may land late, so every write has to be harmless when done twice.
package lease

import (
	"errors"
	"fmt"
	"time"
)

// Minimal relations between the durations of a lease.
const (
	minRenewsPerExpiry = 3               // a renewal may fail and be repeated once before giving up
	minRenew           = 1 * time.Second // the claim label has millisecond precision, the Date header second precision
)

// Terms are the durations of a lease.
type Terms struct{ Expiry, Renew time.Duration }

// Validate refuses terms under which a lease could be lost without a fault.
func (t Terms) Validate() error {
	switch {
	case t.Expiry <= 0 || t.Renew <= 0:
		return errors.New("claim expiry and lease renewal interval must be positive")
	case t.Renew < minRenew:
		return fmt.Errorf("lease renewal interval %s is below %s", t.Renew, minRenew)
	case t.Expiry < minRenewsPerExpiry*t.Renew:
		return fmt.Errorf("claim expiry %s must be at least %d times the lease renewal interval %s", t.Expiry, minRenewsPerExpiry, t.Renew)
	}
	return nil
}

// GiveUp is how long after the last renewal the work stops.
func (t Terms) GiveUp() time.Duration { return t.Expiry * 2 / 3 }

// ClockError is the largest error of the server clock that a claim may carry.
func (t Terms) ClockError() time.Duration { return t.Expiry / 6 }

// CallTimeout bounds one request about a held claim. Between a renewal that was due and the end of
// the lease there is time for three of them.
func (t Terms) CallTimeout() time.Duration { return min(t.Renew, 10*time.Second) }

// Alive returns how much longer the lease of another agent may last at server time now; 0 or less
// when it is over. Both times are in milliseconds. A claim that cannot be compared, because it is
// far in the future, binds no agent.
func (t Terms) Alive(claimed, now int64) time.Duration {
	if claimed-now > t.Expiry.Milliseconds() {
		return 0
	}
	return time.Duration(claimed-now)*time.Millisecond + t.Expiry + t.ClockError()
}

// Lapsed reports whether an own claim may be dead for another agent at server time now, in
// milliseconds: its clock and ours may be off.
func (t Terms) Lapsed(claimed, now int64) bool {
	age := now - claimed
	return age >= (t.Expiry-t.ClockError()).Milliseconds() || age <= -(t.Expiry-2*t.ClockError()).Milliseconds()
}

// Reading is what the two clocks of a host show at one moment.
type Reading struct {
	time.Time           // with its monotonic reading, for durations
	Wall      time.Time // the wall clock alone, which may be wrong and may jump
}

// ReadingOf returns the Reading at a result of time.Now.
func ReadingOf(t time.Time) Reading { return Reading{Time: t, Wall: t.Round(0)} }

// Trust is what a leaseholder may assume.
type Trust int

// Values of Trust.
const (
	Valid     Trust = iota // write
	Uncertain              // renew before the next write
	Expired                // never write again
)

// Lease is the state of one lease.
type Lease struct {
	Terms
	confirmed Reading   // when the last successful renewal was sent
	next      time.Time // when the next renewal is due
	failures  int       // renewals failed in a row
}

// New returns a lease whose claim was written by a request sent at confirmed.
func New(t Terms, confirmed Reading) Lease {
	return Lease{Terms: t, confirmed: confirmed, next: confirmed.Add(t.Renew)}
}

// Renewed records a success whose request was sent at the given time.
func (l *Lease) Renewed(sent Reading) {
	if sent.After(l.confirmed.Time) {
		l.confirmed = sent
	}
	l.next = l.confirmed.Add(l.Renew)
	l.failures = 0
}

// Failed records a renewal that did not succeed. The next one comes sooner than usual, then ever
// later up to the usual interval, and not before the server wants it.
func (l *Lease) Failed(now time.Time, retryAfter time.Duration) {
	l.next = now.Add(max(retryAfter, min(l.Renew/8<<min(l.failures, 3), l.Renew)))
	l.failures++
}

// Next is when the next renewal is due.
func (l *Lease) Next() time.Time { return l.next }

// Expires is when the lease ends for other agents.
func (l *Lease) Expires() time.Time { return l.confirmed.Add(l.Expiry) }

// Deadline is when the work has to stop unless a renewal succeeds.
func (l *Lease) Deadline() time.Time { return l.confirmed.Add(l.GiveUp()) }

// Trust judges the lease. The monotonic clock decides; the wall clock, which unlike it goes on
// while a host is suspended, can only raise doubt.
func (l *Lease) Trust(now Reading) Trust {
	switch {
	case now.Sub(l.confirmed.Time) >= l.GiveUp():
		return Expired
	case now.Wall.Sub(l.confirmed.Wall) >= l.GiveUp():
		return Uncertain
	}
	return Valid
}
