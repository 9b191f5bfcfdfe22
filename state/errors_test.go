package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"limpet/state/frame"
	"limpet/state/repair"

	bolterrors "go.etcd.io/bbolt/errors"
)

func TestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	flat := func(err error) error { return fmt.Errorf("file resize error: %s", err) }
	cases := []struct {
		name string
		err  error
		want []error
	}{
		{"none", nil, nil},
		{"disk full", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, []error{syscall.ENOSPC}},
		{"disk full, flattened", flat(syscall.ENOSPC), []error{syscall.ENOSPC}},
		{"quota", syscall.EDQUOT, []error{syscall.ENOSPC, syscall.EDQUOT}},
		{"quota, flattened", flat(syscall.EDQUOT), []error{syscall.ENOSPC, syscall.EDQUOT}},
		{"limit, flattened", flat(syscall.EFBIG), []error{syscall.ENOSPC, syscall.EFBIG}},
		{"read-only", &fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, []error{ErrReadOnly, syscall.EROFS}},
		{"read-only, flattened", flat(syscall.EROFS), []error{ErrReadOnly, syscall.EROFS}},
		{"forbidden", syscall.EACCES, []error{ErrReadOnly, syscall.EACCES}},
		{"not permitted", syscall.EPERM, []error{ErrReadOnly}},
		{"cap", bolterrors.ErrMaxSizeReached, []error{ErrFull}},
		{"closed", bolterrors.ErrDatabaseNotOpen, []error{ErrClosed}},
		{"other", context.Canceled, []error{context.Canceled}},
	}
	sentinels := []error{ErrFull, ErrReadOnly, ErrClosed, ErrCorrupt, syscall.ENOSPC}
	for _, c := range cases {
		got := frame.Classify(frame.Classify(c.err))
		if (got == nil) != (c.err == nil) {
			t.Errorf("%s: %v", c.name, got)
		}
		for _, want := range c.want {
			if !errors.Is(got, want) {
				t.Errorf("%s: %v is not %v", c.name, got, want)
			}
		}
		for _, other := range sentinels {
			listed := false
			for _, want := range c.want {
				listed = listed || want == other
			}
			if !listed && errors.Is(got, other) {
				t.Errorf("%s: %v is also %v", c.name, got, other)
			}
		}
	}
}

func TestErrorsNameWhatIsNeeded(t *testing.T) {
	t.Parallel()
	cases := []struct {
		err  error
		want []string
	}{
		{&LockedError{Path: "/p"}, []string{"/p", "in use"}},
		{&LockedError{Path: "/p", PID: 4121, Since: noon}, []string{"/p", "4121", "2026-11-20"}},
		{&SchemaError{Have: 3, Want: 1, Path: "/p"}, []string{"/p", "3", "1"}},
		{frame.Corrupt("page %d", 7), []string{"damaged", "page 7"}},
		{&repair.FaultError{Cause: "index out of range"}, []string{"damaged", "index out of range"}},
	}
	for _, c := range cases {
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("%q does not say %q", c.err, want)
			}
		}
	}
}
