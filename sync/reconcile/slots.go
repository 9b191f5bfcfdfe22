package reconcile

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// A thousand Repositories of one interval must not be checked in the same second, also not after a
// network that was away for all of them has come back. So each has a slot of its own within the
// interval, which follows from its UID.

// Fraction returns where in a period the object of that UID has its slot: 0 to 1, the same in every
// process.
func Fraction(uid string) float64 {
	sum := sha256.Sum256([]byte(uid))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// Slot returns the first slot at or after from.
func Slot(uid string, period time.Duration, from time.Time) time.Time {
	offset := time.Duration(Fraction(uid) * float64(period))
	since := time.Duration(from.UnixNano()-int64(offset)) % period
	if since < 0 {
		since += period
	}
	if since == 0 {
		return from
	}
	return from.Add(period - since)
}

// spreadOver is the number of objects that are worth a whole interval to spread what became
// due while no controller ran. One on its own is checked within a thousandth.
const spreadOver = 1000

// Start is when a controller began and how many objects there were then.
type Start struct {
	At    time.Time
	Count int
}

// Earliest returns the earliest time at which this process reconciles a Repository for no other
// reason than the time.
func (s Start) Earliest(uid string, interval time.Duration) time.Time {
	window := interval * time.Duration(min(s.Count, spreadOver)) / spreadOver
	return s.At.Add(time.Duration(Fraction(uid) * float64(window)))
}

// SlotAfter returns when the remote is asked next, after it was asked last: at the first slot after
// three quarters of the interval, so that a pull of up to a quarter of it leaves the next slot in
// place and a longer one skips it. What became due before the controller began is spread from
// there. Grafana pauses for the interval less 1 s, and then until its next resync.
func (s Start) SlotAfter(last time.Time, uid string, interval time.Duration) time.Time {
	at := Slot(uid, interval, last.Add(interval*3/4))
	if at.Before(s.At) {
		return s.Earliest(uid, interval)
	}
	return at
}
