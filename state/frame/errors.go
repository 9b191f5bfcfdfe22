package frame

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"
)

var (
	// ErrFull is returned by writes that would take the file beyond its size cap. Prune or trim the history and write again.
	ErrFull = errors.New("state file has reached its size limit")

	// ErrReadOnly is returned when the file system or its permissions forbid writing (EROFS, EACCES, EPERM).
	ErrReadOnly = errors.New("state cannot be written")

	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("state is closed")

	// ErrCorrupt is returned when a record or page does not carry the checksum it was written with. The file is
	// verified and rebuilt at the next start.
	ErrCorrupt = errors.New("state file is damaged")

	// ErrForeign is returned by Open when the file is a sound bbolt file of some other program, or text. It is not touched.
	ErrForeign = errors.New("not a limpet state file")
)

// SchemaError reports that the file was written by a newer program. The file has not been touched.
type SchemaError struct {
	Have int // of the file
	Want int // newest that this program knows
	Path string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("state file %s has schema %d, this program knows up to %d", e.Path, e.Have, e.Want)
}

// Corrupt makes an ErrCorrupt with its reason.
func Corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Classify gives the errors of the operating system and of bbolt the sentinel that callers decide by.
func Classify(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrReadOnly), errors.Is(err, ErrFull), errors.Is(err, ErrCorrupt), errors.Is(err, syscall.ENOSPC):
		return err
	case errors.Is(err, bolterrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG): // a quota and a limit of file sizes are a small disk
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return ErrClosed
	}
	// bbolt flattens the error of a failed growth into text.
	for _, known := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EFBIG} {
		if !errors.Is(err, known) && strings.Contains(err.Error(), known.Error()) {
			return Classify(fmt.Errorf("%w (%s)", known, err))
		}
	}
	return err
}
