package repos

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPatchThatNeverFits: a server that refuses a patch again and again is asked
// quickly at first, as somebody else may have been faster, and then like one that
// fails, and a person is told.
func TestPatchThatNeverFits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		looks := 0
		l := newLoop("repository", func(context.Context, Key) (Result, error) {
			looks++
			return Result{}, fmt.Errorf("%w: no", errConflict)
		}, time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+30*time.Second)
		defer cancel()
		if err := l.run(ctx, 1, func() []Key { return []Key{{"ns", "site"}} }); err != nil {
			t.Fatal(err)
		}
		if told := strings.Count(log.String(), "cannot reconcile"); looks != maxConflicts+11 || told != 11 {
			t.Errorf("%d looks in ten minutes, told %d times", looks, told)
		}
	})
}
