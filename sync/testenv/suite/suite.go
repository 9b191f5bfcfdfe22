// Package suite reports in which of the two lanes a test runs. The fast lane is
// 'make test' and a plain 'go test'. The full lane is 'make full', which sets
// LIMPET_TESTS=full: it adds what is long and what needs the API machinery, and
// raises the counts of randomised tests. LIMPET_TESTS=once adds the same tests with the
// counts of the fast lane.
package suite

import (
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	envLane = "LIMPET_TESTS"
	envSeed = "LIMPET_SEED"
)

// IsFull reports whether this is the full lane, with its counts.
func IsFull() bool { return os.Getenv(envLane) == "full" }

// HasAll reports whether the tests of the full lane run, whatever their counts.
func HasAll() bool { return IsFull() || os.Getenv(envLane) == "once" }

// Full leaves a test to the full lane.
func Full(t testing.TB) {
	t.Helper()
	if !HasAll() {
		t.Skip("only in 'make full'")
	}
}

// Count returns how often a test does something in each lane.
func Count(fast, full int) int {
	if IsFull() {
		return full
	}
	return fast
}

// Seed returns the seed of a randomised test and logs it. LIMPET_SEED repeats a run.
// Without it each run of the full lane has another seed, and the fast lane always the same:
// what fails there is the change, not the draw.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	switch {
	case err == nil:
	case HasAll():
		seed = uint64(time.Now().UnixNano())
	default:
		seed = 1
	}
	t.Logf("%s=%d", envSeed, seed)
	return seed
}
