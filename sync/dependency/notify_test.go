package dependency

import (
	"testing"
	"time"
)

func looks(t *testing.T, w *Watcher, what string, want int) {
	t.Helper()
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	if w.files.looks != want {
		t.Errorf("%s: %d looks, want %d", what, w.files.looks, want)
	}
}

// TestLooks: a burst is one look, a moment after it has begun, and so is what comes
// into use; without either there is one now and then.
func TestLooks(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(w *Watcher, _ *told) {
		pass(pollLeast)
		looks(t, w, "at the start", 1)
		pass(pollTold - time.Second)
		looks(t, w, "at rest", 1)
		pass(time.Second)
		looks(t, w, "now and then", 2)
		for range 9 {
			signal(w.touched)
			pass(gather / 10)
		}
		looks(t, w, "within a burst", 2)
		pass(gather)
		looks(t, w, "after it", 3)
		w.Use(a, byName(thing(File, "a")))
		pass(gather)
		looks(t, w, "another one is used", 4)
		pass(pollTold - time.Second)
		looks(t, w, "at rest again", 4)
	})
}

// TestLooksUntold: where the kernel tells nothing, nothing but time has files looked
// at: at the start a thousand come into use.
func TestLooksUntold(t *testing.T) {
	t.Parallel()
	bubble(t, t.TempDir(), func(w *Watcher, _ *told) {
		pass(pollLeast)
		looks(t, w, "at the start", 1)
		w.Use(a, byName(thing(File, "a")))
		pass(pollLeast - time.Millisecond)
		looks(t, w, "another one is used", 1)
		pass(pollLeast)
		looks(t, w, "in time", 2)
	})
}
