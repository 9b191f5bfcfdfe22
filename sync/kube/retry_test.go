package kube

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		calls int
	}{
		"reset":         {syscall.ECONNRESET, 8},
		"cut":           {io.ErrUnexpectedEOF, 8},
		"timeout":       {&timeoutError{After: time.Second}, 8},
		"500":           {apierrors.NewInternalError(errors.New("x")), 8},
		"conflict":      {apierrors.NewConflict(things.GroupResource(), "a", errors.New("x")), 1},
		"not found":     {apierrors.NewNotFound(things.GroupResource(), "a"), 1},
		"canceled":      {context.Canceled, 1},
		"a plain error": {errors.New("x"), 1},
		"flag":          {flagErrorf("--x", "wrong"), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := Retry(t.Context(), func(context.Context) error { calls++; return tc.err })
			if calls != tc.calls || !errors.Is(err, tc.err) {
				t.Errorf("%s: %d calls, %v; want %d", name, calls, err, tc.calls)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err := Retry(ctx, func(context.Context) error {
			if calls++; calls == 2 {
				cancel()
			}
			return syscall.ECONNRESET
		})
		if calls != 2 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}
