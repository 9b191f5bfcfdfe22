package repos

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestLooksGoInPairs: those that are due within a tenth of a second go together, at the
// time of the later one; others, and what is called, wait for nobody.
func TestLooksGoInPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, began := newSchedule(), time.Now()
		at := map[string]time.Duration{}
		var order []string
		ctx, cancel := context.WithCancel(t.Context())
		for name, after := range map[string]time.Duration{"a": 1000, "b": 1040, "c": 1090, "d": 2000, "e": 2101, "f": 3000} {
			table.set(Key{"ns", name}, began.Add(after*time.Millisecond), time.Minute)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			table.run(ctx, func(k Key) { order = append(order, k.Name); at[k.Name] = time.Since(began) })
		}()
		time.Sleep(2960 * time.Millisecond)
		synctest.Wait()
		table.set(Key{"ns", "g"}, began.Add(3050*time.Millisecond), time.Minute)
		table.expedite(Key{"ns", "h"})
		time.Sleep(time.Second)
		cancel()
		<-ended
		// After a pair comes twice the gap, which is 100 ms for so few: c waits for it.
		want := map[string]time.Duration{"a": 1040, "b": 1040, "c": 1240, "d": 2000, "e": 2101, "h": 2960, "f": 3060, "g": 3060}
		for name, ms := range want {
			if at[name] != ms*time.Millisecond {
				t.Errorf("%s after %s, want %d ms", name, at[name], ms)
			}
		}
		if len(order) != len(want) || !slices.Equal(order[:5], []string{"a", "b", "c", "d", "e"}) {
			t.Errorf("order %v", order)
		}
	})
}
