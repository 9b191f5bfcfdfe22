package jobs

import (
	"context"
	"testing"
	"time"
)

// TestCancelIsNoTrouble: the dashboard keeps the last error before the eyes of
// people, and logs are searched for errors; a job that a person has cancelled is
// neither.
func TestCancelIsNoTrouble(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(time.Hour))
		r.job("r1", "r1-sync")
		settle()
		if err := a.Cancel(context.Background(), "default", "r1-sync"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if rec := r.only(); rec.State != stateCancelled {
			t.Fatalf("record %+v", rec)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range a.events {
			if e.Level == "error" || e.State == stateCancelled && e.Level != "warn" {
				t.Errorf("%s, level %s: %s", e.Type, e.Level, e.Text)
			}
		}
	})
}
