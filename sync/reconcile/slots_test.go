package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestSlots: each Repository has its turn once in every interval, at the same
// place for ever, and a thousand of them are spread.
func TestSlots(t *testing.T) {
	t.Parallel()
	const period = time.Minute
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var seconds [60]int
	for i := range 1000 {
		uid := fmt.Sprintf("9f1f4d4c-98d7-4745-8ce8-%012d", i)
		first := Slot(uid, period, at)
		if d := first.Sub(at); d < 0 || d >= period {
			t.Fatalf("%s: turn after %s", uid, d)
		}
		if again := Slot(uid, period, first); !again.Equal(first) {
			t.Fatalf("%s: at its turn the next one is %s later", uid, again.Sub(first))
		}
		if next := Slot(uid, period, first.Add(1)); next.Sub(first) != period {
			t.Fatalf("%s: the turn after is %s later", uid, next.Sub(first))
		}
		if next := (Start{}).SlotAfter(first.Add(15*time.Second), uid, period); next.Sub(first) != period {
			t.Fatalf("%s: a pull of a quarter of the interval moves the turn to %s later", uid, next.Sub(first))
		}
		if next := (Start{}).SlotAfter(first.Add(16*time.Second), uid, period); next.Sub(first) != 2*period {
			t.Fatalf("%s: after a longer pull the turn is %s later", uid, next.Sub(first))
		}
		seconds[int(first.Sub(at)/time.Second)]++
	}
	if most := slices.Max(seconds[:]); most > 40 {
		t.Errorf("%d of 1000 in one second", most)
	}
}
