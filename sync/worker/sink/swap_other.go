//go:build !linux

package sink

import (
	"errors"
	"os"
)

// swap is not supported on this system.
func swap(*os.File, string, string) error { return errors.ErrUnsupported }
