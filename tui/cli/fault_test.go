package cli_test

import (
	"flag"
	"testing"
	"time"
)

var (
	long = flag.Bool("fault", false, "raise the counts of the fault tests, as 'make fault' does")
	seed = flag.Uint64("seed", 0, "seed of the fault tests; 0 = another one each time")
)

// seeded returns the seed of a randomised test and says it, so that a run can be
// repeated with -seed.
func seeded(t *testing.T) uint64 {
	t.Helper()
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("seed=%d", n)
	return n
}

// times is how often a test does something: in 'make test', and with -fault.
func times(short, fault int) int {
	if *long {
		return fault
	}
	return short
}
