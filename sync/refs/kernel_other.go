//go:build !linux

package refs

import "errors"

// tells says that no kernel but Linux is asked.
func tells(string) error { return errors.ErrUnsupported }
