package jobs

import "time"

// retryDelay is how long a name rests after its try-th failure in a row on the
// way to a claim: 250 ms, 500 ms, 1 s and so on up to 30 s.
func retryDelay(try int) time.Duration {
	return doubled(250*time.Millisecond, try-1, 30*time.Second)
}

// attemptDelay is how long a job rests before it may be claimed for the given
// attempt: nothing before the first, 5 s before the second, 20 s before the
// third, 80 s before the fourth, then 5 min. A job that kills its agent must not
// do so every few seconds.
func attemptDelay(attempt int) time.Duration {
	if attempt <= 1 {
		return 0
	}
	d := 5 * time.Second
	for range attempt - 2 {
		if d *= 4; d >= 5*time.Minute {
			return 5 * time.Minute
		}
	}
	return d
}

// doubled returns first x 2^n, at most limit.
func doubled(first time.Duration, n int, limit time.Duration) time.Duration {
	d := first
	for range n {
		if d *= 2; d >= limit {
			return limit
		}
	}
	return min(d, limit)
}
