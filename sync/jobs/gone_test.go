package jobs

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestGoneJobsCostNothing: a job that went away while its name was waiting is
// not asked about. Agents that share a backlog meet such names all the time.
func TestGoneJobsCostNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.repository("r2")
		var mu sync.Mutex
		var asked []string
		r.model.inject(func(c call) fault {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, c.Verb+" "+c.Name)
			return fault{}
		})
		r.start("a", Options{Drivers: 1}, worker(func(context.Context, *Task) error { <-time.After(time.Minute); return nil }))
		settle()
		r.job("r1", "first")
		pass(time.Second)
		r.job("r2", "gone")
		pass(time.Second)
		r.model.remove("jobs", "default", "gone")
		pass(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for _, a := range asked {
			if contains(a, "gone") {
				t.Errorf("asked about a job that is gone: %v", asked)
			}
		}
		if !slices.ContainsFunc(asked, func(a string) bool { return contains(a, "first") }) {
			t.Errorf("asked %v", asked)
		}
	})
}
