package repos

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// A thousand Repositories of one interval must not be looked at in the same
// second, also not after a network that was away for all of them has come back.
// So each has a place of its own within the interval, which follows from its UID,
// and is looked at in that place of every interval.

// place is where in a period the Repository of that UID has its turn: 0 to 1,
// the same in every process.
func place(uid string) float64 {
	sum := sha256.Sum256([]byte(uid))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// turn is the first turn at or after from.
func turn(uid string, period time.Duration, from time.Time) time.Time {
	offset := time.Duration(place(uid) * float64(period))
	since := time.Duration(from.UnixNano()-int64(offset)) % period
	if since < 0 {
		since += period
	}
	if since == 0 {
		return from
	}
	return from.Add(period - since)
}

// rest is the shortest time between the end of a pull and the next look at the
// remote. The next look is at the first turn after it: a pull of up to a quarter
// of the interval leaves the next turn in place, a longer one skips it. Grafana
// rests for the interval less 1 s, and then until its next resync.
func rest(interval time.Duration) time.Duration { return interval * 3 / 4 }

// crowd is how many Repositories are worth a whole interval to spread what became
// due while nobody looked. One on its own is looked at within a thousandth.
const crowd = 1000

// first is the earliest time at which this process looks at a Repository for no
// other reason than the time.
func (s start) first(uid string, interval time.Duration) time.Time {
	window := interval * time.Duration(min(s.count, crowd)) / crowd
	return s.at.Add(time.Duration(place(uid) * float64(window)))
}

// turnAfter is when the remote is looked at next, after what was last. What
// became due before the controller began is spread from there.
func turnAfter(last time.Time, uid string, interval time.Duration, s start) time.Time {
	at := turn(uid, interval, last.Add(rest(interval)))
	if at.Before(s.at) {
		return s.first(uid, interval)
	}
	return at
}
