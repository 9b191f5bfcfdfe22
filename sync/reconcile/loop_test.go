package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/worker/sink"
)

// TestConflictsThatDoNotEnd: a server that refuses a patch again and again is asked
// quickly at first, as another controller may have been faster, and then seldom, and it is
// logged.
func TestConflictsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		looks := 0
		l := NewLoop(Options{Kind: "repository", MaxRetry: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil)), Reconcile: func(context.Context, Key) (Result, error) {
			looks++
			return Result{}, fmt.Errorf("%w: no", ErrConflict)
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+30*time.Second)
		defer cancel()
		if err := l.Work(ctx, func() []Key { return []Key{{Namespace: "ns", Name: "site"}} }); err != nil {
			t.Fatal(err)
		}
		// After 1, 2, 4, 8, 16 and 32 seconds, and then each minute.
		if told := strings.Count(log.String(), "cannot reconcile"); looks != 16 || told != looks-quietConflicts {
			t.Errorf("%d looks in ten minutes, told %d times", looks, told)
		}
	})
}

// TestFailsBesides: what fails beside the work of an object does not put off its next time.
func TestFailsBesides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		l := NewLoop(Options{Kind: "source", MaxRetry: time.Hour, Logger: slog.New(slog.DiscardHandler), Reconcile: func(context.Context, Key) (Result, error) {
			looks++
			return Result{Next: time.Now().Add(30 * time.Second)}, errors.New("no")
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer cancel()
		if err := l.Work(ctx, func() []Key { return []Key{{Namespace: "ns", Name: "site"}} }); err != nil || looks < 20 {
			t.Errorf("%d looks, %v", looks, err)
		}
	})
}

// TestProgramPause: a program that failed has a backoff of its own, and does not put off the next
// time of its object.
func TestProgramPause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ next, wait, want time.Duration }{
		"the pause of the program": {0, 90 * time.Second, 90 * time.Second},
		"the interval":             {30 * time.Second, 90 * time.Second, 30 * time.Second},
		"none":                     {0, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := NewLoop(Options{Kind: "sink", MaxRetry: time.Hour, Logger: slog.New(slog.DiscardHandler), Reconcile: func(context.Context, Key) (Result, error) {
					var r Result
					if c.next > 0 {
						r.Next = began.Add(c.next)
					}
					return r, fmt.Errorf("x: %w", &sink.ExecError{Err: errors.New("no"), RetryAfter: c.wait})
				}})
				l.runOnce(t.Context(), Key{Namespace: "ns", Name: "site"})
				if got := l.Next("ns", "site").Sub(began); got != c.want {
					t.Errorf("next after %v, want %v", got, c.want)
				}
			})
		})
	}
}
