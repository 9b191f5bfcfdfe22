package sink

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// swap exchanges two names of a directory in one step. The error is errors.ErrUnsupported if the file system or the
// kernel does not support it.
func swap(dir *os.File, a, b string) error {
	fd := int(dir.Fd())
	err := unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return fmt.Errorf("exchange directories: %w", errors.ErrUnsupported)
	case err != nil:
		return fmt.Errorf("exchange directories: %w", err)
	}
	return nil
}
