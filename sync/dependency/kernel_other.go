//go:build !linux

package dependency

import "errors"

// tells says that no kernel but Linux is asked.
func tells(string) error { return errors.ErrUnsupported }
