package resources

import (
	"errors"
	"fmt"
	"limpet/sync/api/repopath"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// DuplicateError reports that two files of one tree name one object. It is a
// warning; the second file is not written.
type DuplicateError struct {
	Object      Identity
	Path, Other string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s is in %s and in %s; give one of the files another uid", e.Object, e.Path, e.Other)
}

// SkippedError reports that a change was left out because another one did not
// succeed. It is a warning; the other change carries the cause.
type SkippedError struct{ Reason string }

func (e *SkippedError) Error() string { return e.Reason }

// QuotaError reports that a file was left out because the repository may not hold
// more resources. It is a warning.
type QuotaError struct {
	Path string
	Max  int64
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("resource quota of %d exceeded, skipping creation of %s", e.Max, e.Path)
}

// IsWarning reports whether err lets a job go on and end as a warning: what a
// person has to repair in a file or on the server, and what no repetition would
// change. Everything else is an error of the job, like a server that is away.
func IsWarning(err error) bool {
	for _, target := range []func(error) bool{
		as[*repopath.PathError], as[*ParseError], as[*FolderFileError], as[*OwnershipError],
		as[*DuplicateError], as[*SkippedError], as[*QuotaError], as[*TooLargeError],
	} {
		if target(err) {
			return true
		}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return true
	}
	return false
}

func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
