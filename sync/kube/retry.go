package kube

import (
	"context"
	"math/rand/v2"
	"time"
)

// The schedule of Retry: 100 ms, doubled up to 5 s, each up to a tenth longer;
// 8 attempts take about 13 s in all, less than the expiry of a lease.
const (
	retryAttempts = 8
	retryFirst    = 100 * time.Millisecond
	retryLast     = 5 * time.Second
)

// Retry calls fn until it succeeds, up to 8 times, and returns its last error. It tries again when Retryable
// says so, and then waits as long as the server asked for, if it did. It returns at once when ctx ends or
// would end before the next attempt. fn must be harmless when done twice.
func Retry(ctx context.Context, fn func(ctx context.Context) error) error {
	return retryWhile(ctx, Retryable, fn)
}

// retryWhile is Retry for the errors that again accepts.
func retryWhile(ctx context.Context, again func(error) bool, fn func(ctx context.Context) error) error {
	pause := retryFirst
	for n := 1; ; n++ {
		err := fn(ctx)
		if err == nil || n == retryAttempts || ctx.Err() != nil || !again(err) {
			return err
		}
		wait := pause
		if after, ok := RetryAfter(err); ok {
			wait = max(wait, after)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
		pause = min(2*pause, retryLast)
	}
}

// sleep waits for d and up to a tenth more. It returns the cause of ctx when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d + rand.N(d/10+1)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
