package jobs

import (
	"testing"
	"time"
)

// TestHeadStart: claims that come too late or too early make the head start
// longer, won ones make it shorter, both within bounds.
func TestHeadStart(t *testing.T) {
	t.Parallel()
	r := newRivalry()
	if r.head() != firstHead {
		t.Errorf("an agent that knows nothing gives %s", r.head())
	}
	r.early()
	if r.head() != 2*firstHead {
		t.Errorf("%s after an early claim", r.head())
	}
	r.lose(150*time.Millisecond, true)
	if r.head() != headPerRequest*150*time.Millisecond {
		t.Errorf("%s after a lost request of 150 ms", r.head())
	}
	before := r.head()
	if r.lose(time.Minute, false); r.head() != before {
		t.Errorf("%s after a claim that was lost to somebody who waits for nobody", r.head())
	}
	for range 10 {
		r.lose(time.Minute, true)
		r.early()
	}
	if r.head() != maxHead {
		t.Errorf("%s at most", r.head())
	}
	for range 2000 {
		r.win()
	}
	if won, lost := r.races(); r.head() != minHead || won != 2000 || lost != 12 {
		t.Errorf("%s at least, %d won, %d lost", r.head(), won, lost)
	}
}

// TestHeadStartFindsItsLength: when claims need some time to be seen, about one
// in a hundred is lost, whatever that time is.
func TestHeadStartFindsItsLength(t *testing.T) {
	t.Parallel()
	for _, needed := range []time.Duration{40 * time.Millisecond, 150 * time.Millisecond, 600 * time.Millisecond} {
		r := newRivalry()
		lost := 0
		for range 2000 {
			if r.head() < needed {
				r.lose(needed/10, true)
				lost++
				continue
			}
			r.win()
		}
		if lost < 5 || lost > 20 {
			t.Errorf("%d of 2000 claims are lost when a head start must be %s long", lost, needed)
		}
	}
}
