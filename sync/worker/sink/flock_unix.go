//go:build unix

package sink

import (
	"os"

	"golang.org/x/sys/unix"
)

// flock takes the lock of f. The error is EWOULDBLOCK if another process has it.
func flock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
