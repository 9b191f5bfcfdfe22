package snapshot

import (
	"testing"
	"time"
)

func TestShareOfTheProcessor(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	var l cpuUsage
	for i, step := range []struct {
		at, used time.Duration
		want     float64
	}{
		{0, 3 * time.Second, 0},                  // nothing to compare with
		{5 * time.Second, 8 * time.Second, 0},    // too short
		{10 * time.Second, 8 * time.Second, 50},  // half of ten seconds
		{15 * time.Second, 13 * time.Second, 50}, // still that
		{30 * time.Second, 8020 * time.Millisecond, 0.1},
		{50 * time.Second, 8020 * time.Millisecond, 0.05},
		{70 * time.Second, time.Second, 0.05}, // the count has gone back
		{90 * time.Second, 41 * time.Second, 200},
		{40 * time.Second, 41 * time.Second, 200}, // the clock has
		{50 * time.Second, 42 * time.Second, 10},
	} {
		if got := l.share(begin.Add(step.at), step.used); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

func TestProcessorTime(t *testing.T) {
	t.Parallel()
	before := processorTime()
	for end := time.Now().Add(10 * time.Second); processorTime() < before+20*time.Millisecond; {
		if time.Now().After(end) {
			t.Fatalf("after ten seconds of work it is still %s", before)
		}
	}
}
