//go:build !linux

package doctor

import (
	"os"
	"time"
)

// answers knows nothing: other systems wait for a terminal differently.
func answers(*os.File, *os.File, time.Duration) (answered, known bool) { return false, false }

// diskOf knows nothing: each system has its own call.
func diskOf(string) disk { return disk{free: -1} }
