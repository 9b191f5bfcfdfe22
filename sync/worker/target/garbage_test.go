package target

import (
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// TestGarbage: a small heap grows by more while pulls write, a large one as ever, and after the last
// of them each does.
func TestGarbage(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(restPercent)
	defer debug.SetGCPercent(before)
	percent := func() int {
		now := debug.SetGCPercent(restPercent)
		debug.SetGCPercent(now)
		return now
	}
	synctest.Test(t, func(t *testing.T) {
		var g Garbage
		first := g.Leave(t.Context())
		second := g.Leave(t.Context())
		time.Sleep(2 * spareLook)
		first()
		if got := percent(); got < restPercent {
			t.Errorf("while a pull writes: %d", got)
		}
		second()
		if got := percent(); got != restPercent {
			t.Errorf("after it: %d", got)
		}
	})
	for live, want := range map[uint64]int{0: 400, 10 << 20: 200, 20 << 20: 100, 40 << 20: 50, 400 << 20: 50} {
		if got := gcPercent(live); got != want {
			t.Errorf("heap of %d: %d", live, got)
		}
	}
}
