package identity

import (
	"context"
	"net/http"
	"time"

	"limpet/sync/netx"
)

// What is signed carries a time, which the other side compares with its own within
// minutes. The clock of a small board may be years off; that of the other side is in
// the head of each of its answers, refusals too.

// learnedSkew is the difference from which on the clock of the other side is used. An
// answer tells it to the second.
const learnedSkew = 30 * time.Second

// learn notes the clock of a provider by the head of an answer.
func (d *desk) learn(res *http.Response) {
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		d.learnAt(at)
	}
}

// learnAt notes that it is that time at a provider.
func (d *desk) learnAt(at time.Time) {
	skew := time.Until(at)
	if skew.Abs() <= learnedSkew {
		skew = 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.skew, d.told = skew, true
}

// now is the time by the clock of the provider; while it has told none, as well as it
// is known otherwise.
func (d *desk) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.told {
		return d.o.Now()
	}
	return time.Now().Add(d.skew)
}

// timely makes a call that is signed at a time, and makes it once more when it is
// refused and the answer tells that it is another time there.
func (d *desk) timely(ctx context.Context, at func(now time.Time) (call, error)) (answer, error) {
	for tried := false; ; tried = true {
		now := d.now()
		c, err := at(now)
		if err != nil {
			return answer{}, err
		}
		began := time.Now()
		got, err := d.do(ctx, c)
		refused := netx.KindOf(err) == netx.Unauthorized || netx.KindOf(err) == netx.Forbidden || netx.KindOf(err) == netx.Refused
		if !refused || tried || d.now().Add(-time.Since(began)).Sub(now).Abs() <= learnedSkew {
			return got, err
		}
	}
}
