package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestTogether(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context) error { <-ctx.Done(); return nil }
	odd := errors.New("odd")
	for _, tt := range []struct {
		name  string
		parts []func(context.Context) error
		want  error
	}{
		{"the last part ends them all", []func(context.Context) error{wait, wait, func(context.Context) error { return nil }}, nil},
		{"so does any that fails", []func(context.Context) error{wait, func(context.Context) error { return odd }, wait}, odd},
		{"one that ends well does not", []func(context.Context) error{func(context.Context) error { return nil },
			func(context.Context) error { return odd }}, odd},
		{"the first fault is told", []func(context.Context) error{func(ctx context.Context) error { <-ctx.Done(); return errors.New("late") },
			func(context.Context) error { return odd }}, odd},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // ends only when every part has ended
				if err := RunTogether(t.Context(), tt.parts...); !errors.Is(err, tt.want) {
					t.Errorf("%v, want %v", err, tt.want)
				}
			})
		})
	}
}
