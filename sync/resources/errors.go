package resources

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api/repopath"
)

// DuplicateError reports that two files of one tree name one object. It is a warning; the second file is not written.
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

// QuotaError reports that a file was left out because the repository may not hold more resources. It is a warning.
type QuotaError struct {
	Path string
	Max  int64
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("resource quota of %d exceeded, skipping creation of %s", e.Max, e.Path)
}

// reasons are the kinds of errors of one resource: few, and none depends on what Git or a server sends. A
// warning lets the job go on: a person has to repair a file or an object, and no repetition would change that.
var reasons = []struct {
	name    string
	issue   string // Grafana's word for it; "" = none
	warning bool
	is      func(error) bool
}{
	{"path", "ResourceInvalid", true, as[*repopath.PathError]},
	{"parse", "ResourceInvalid", true, as[*ParseError]},
	{"folder_file", "InvalidFolderMetadata", true, as[*FolderFileError]},
	{"ownership", "ResourceInvalid", true, as[*OwnershipError]},
	{"duplicate", "ResourceInvalid", true, as[*DuplicateError]},
	{"skipped", "", true, as[*SkippedError]},
	{"quota", "QuotaExceeded", true, as[*QuotaError]},
	{"too_large", "ResourceInvalid", true, as[*TooLargeError]},
	{"conflict", "", false, apierrors.IsConflict},
	{"forbidden", "", false, apierrors.IsForbidden},
	{"unauthorized", "", false, apierrors.IsUnauthorized},
	{"not_found", "", false, apierrors.IsNotFound},
	{"exists", "", false, apierrors.IsAlreadyExists},
	{"invalid", "ResourceInvalid", false, func(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }},
	{"too_large", "ResourceInvalid", false, apierrors.IsRequestEntityTooLargeError},
	{"busy", "", false, func(err error) bool { return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) }},
	{"timeout", "", false, func(err error) bool { return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) }},
	{"server", "", false, func(err error) bool {
		return apierrors.IsInternalError(err) || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	}},
}

func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// Reason returns a short name of the kind of err: one of a fixed set, "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, r := range reasons {
		if r.is(err) {
			return r.name
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "other"
}

// IssueReason returns Grafana's word for the kind of err, "" where it has none.
func IssueReason(err error) string {
	for _, r := range reasons {
		if r.is(err) {
			return r.issue
		}
	}
	return ""
}

// IsWarning reports whether err lets a job go on and end as a warning.
func IsWarning(err error) bool {
	for _, r := range reasons {
		if r.warning && r.is(err) {
			return true
		}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusBadRequest || code == http.StatusUnprocessableEntity || code == http.StatusRequestEntityTooLarge
}
