//go:build !linux

package sink

import (
	"errors"
	"os"
)

// swap exchanges two names of a directory in one step, which this system
// cannot.
func swap(*os.File, string, string) error { return errors.ErrUnsupported }
