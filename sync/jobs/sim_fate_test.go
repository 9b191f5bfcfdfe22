package jobs

import (
	"context"
	"time"
)

// fate is chance that gives the same answer to the same question, whoever asks
// first: so goroutines that run at the same instant cannot change a story.
type fate uint64

// of returns the chance of something more particular.
func (f fate) of(parts ...uint64) fate {
	z := uint64(f)
	for _, p := range parts { // splitmix64
		z += 0x9e3779b97f4a7c15 + p*0xff51afd7ed558ccd
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
	}
	return fate(z)
}

func (f fate) about(text string) fate {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return f.of(h)
}

// n is below limit.
func (f fate) n(limit int) int { return int(uint64(f.of(1)) % uint64(limit)) }

// likely is true that often in a thousand.
func (f fate) likely(perMille int) bool { return f.of(2).n(1000) < perMille }

// between spreads evenly over nanoseconds, so that no two things happen at the
// same instant.
func (f fate) between(low, high time.Duration) time.Duration {
	return low + time.Duration(uint64(f.of(3))%uint64(high-low))
}

// rest waits for d or the end of ctx, and says whether it was d.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// window is a span of time of the bubble.
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// inside returns the end of the window that t is in.
func inside(windows []window, t time.Time) (time.Time, bool) {
	for _, w := range windows {
		if w.has(t) {
			return w.to, true
		}
	}
	return time.Time{}, false
}
