package reconcile

import "context"

// Step is a part of a reconcile of an attempt. It reads what the steps before it have found, and
// adds its own. It ends the reconcile when it is done or fails.
type Step[A any] func(ctx context.Context, a A) (done bool, err error)

// Run runs steps one after the other, until one of them ends the reconcile. It reports whether one
// was done.
func Run[A any](ctx context.Context, a A, steps []Step[A]) (done bool, err error) {
	for _, step := range steps {
		if done, err := step(ctx, a); done || err != nil {
			return done, err
		}
	}
	return false, nil
}
