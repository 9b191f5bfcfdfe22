package jobs

import "time"

// Intervals between progress writes of one job. Source: Grafana's progress
// recorder. Unlike there an update inside the interval is not dropped but sent
// when the interval is over, so the last one always arrives.
const (
	messageInterval = 500 * time.Millisecond
	recordInterval  = 5 * time.Second
)

// throttle decides when the progress of one job is written. It is told the time
// and does no I/O.
type throttle struct {
	last    time.Time // of the last write
	message bool      // a message or a total has changed since
	record  bool      // a resource was recorded since
}

// due returns when the next write has to happen, if anything has changed.
func (t *throttle) due() (time.Time, bool) {
	switch {
	case t.message:
		return t.last.Add(messageInterval), true
	case t.record:
		return t.last.Add(recordInterval), true
	}
	return time.Time{}, false
}

// begin records that a write with everything known so far starts now.
func (t *throttle) begin(now time.Time) {
	*t = throttle{last: now}
}

// again records that the write did not arrive.
func (t *throttle) again() { t.record = true }
