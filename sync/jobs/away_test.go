package jobs

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/kube"
)

// TestServerAway: a worker that cannot reach the server that it writes to has
// nothing to say about its job.
func TestServerAway(t *testing.T) {
	away := func() error { return &kube.UnavailableError{Err: errors.New("connection refused")} }
	t.Run("the API is away for minutes", func(t *testing.T) {
		bubble(t, func(r *rig) {
			var a *agent
			outage := true
			w := worker(func(ctx context.Context, _ *Task) error {
				if !outage {
					return nil
				}
				a.link.cut(true)
				return away()
			})
			r.repository("r1")
			a = r.start("a", Options{}, w)
			r.job("r1", "r1-sync")
			pass(7 * time.Minute)
			if len(r.history()) != 0 || len(r.claims()) != 1 {
				t.Errorf("while the API is away: %d records, %d claims", len(r.history()), len(r.claims()))
			}
			outage = false
			a.link.cut(false)
			pass(time.Minute)
			r.done("success", "")
			if seen := w.seen(); !slices.Equal(seen, []string{"r1-sync 1 ", "r1-sync 1 "}) {
				t.Errorf("runs: %q", seen)
			}
		})
	})
	t.Run("only the server of the worker is away", func(t *testing.T) {
		bubble(t, func(r *rig) {
			w := worker(func(ctx context.Context, task *Task) error {
				if task.Attempt < 3 {
					return away()
				}
				return nil
			})
			r.repository("r1")
			a := r.start("a", Options{}, w)
			r.job("r1", "r1-sync")
			pass(time.Second)
			if n, claims := a.count(EventRetry), r.claims(); n != 1 || len(claims) != 1 || claims[0].Phase != state.PhaseResting {
				t.Errorf("%d postponed, claims %+v", n, claims)
			}
			pass(2 * time.Minute)
			r.done("success", "")
		})
	})
	t.Run("and stays away", func(t *testing.T) {
		bubble(t, func(r *rig) {
			w := worker(func(context.Context, *Task) error { return away() })
			r.repository("r1")
			r.start("a", Options{}, w)
			r.job("r1", "r1-sync")
			pass(10 * time.Minute)
			r.done("dead", "API unavailable: connection refused (3 attempts)")
			if n := len(w.seen()); n != DefaultMaxAttempts {
				t.Errorf("%d runs", n)
			}
		})
	})
	t.Run("the API goes during the last attempt", func(t *testing.T) {
		bubble(t, func(r *rig) {
			var a *agent
			outage := true
			w := worker(func(_ context.Context, task *Task) error {
				if task.Attempt == 3 && outage {
					a.link.cut(true)
				} else if task.Attempt == 3 {
					return nil
				}
				return away()
			})
			r.repository("r1")
			a = r.start("a", Options{}, w)
			r.job("r1", "r1-sync")
			pass(10 * time.Minute)
			if len(r.history()) != 0 {
				t.Errorf("ended while the API is away: %+v", r.only())
			}
			outage = false
			a.link.cut(false)
			pass(time.Minute)
			r.done("success", "")
		})
	})
}
