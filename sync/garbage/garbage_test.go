package garbage

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestLeave: the heap grows by more while something works, and by half from the collection on that
// follows the last of them.
func TestLeave(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	defer func() { pace.limited = false }()
	percent := func() int {
		pace.mu.Lock()
		defer pace.mu.Unlock()
		return pace.percent
	}
	Limit()
	if got := percent(); got != firstPercent {
		t.Errorf("at the start: %d", got)
	}
	job, write, second := Leave(Jobs), Leave(Writes), Leave(Writes)
	if got := percent(); got != 400 {
		t.Errorf("while objects are written: %d", got)
	}
	job()
	write()
	runtime.GC()
	if got := percent(); got <= restPercent {
		t.Errorf("while the second writes: %d", got)
	}
	second()
	for percent() != restPercent {
		runtime.GC()
	}
}

// TestUnlimited: GOGC stands, and a program that sets no limit has none.
func TestUnlimited(t *testing.T) {
	t.Setenv("GOGC", "70")
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	Limit()
	Leave(Writes)()
	if got := debug.SetGCPercent(70); got != 70 {
		t.Errorf("%d", got)
	}
}

// TestGrowth: a small heap grows by the spare of what works, a large one by half.
func TestGrowth(t *testing.T) {
	for used, want := range map[uint64]int{0: 400, 10 << 20: 200, 11 << 20: 175, 20 << 20: 100, 40 << 20: 50, 400 << 20: 50} {
		if got := growth(used, uint64(Writes)); got != want {
			t.Errorf("heap of %d: %d, want %d", used, got, want)
		}
		if got := growth(used, 0); got != restPercent {
			t.Errorf("heap of %d at rest: %d", used, got)
		}
	}
}
