package resources

import (
	"context"
	"errors"
	"limpet/sync/api/repopath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons why a resource was not made right, for those who count them. There are
// few, and they do not depend on what Git or a server sends.
var reasons = []struct {
	name string
	is   func(error) bool
}{
	{"path", as[*repopath.PathError]},
	{"parse", as[*ParseError]},
	{"folder_file", as[*FolderFileError]},
	{"ownership", as[*OwnershipError]},
	{"duplicate", as[*DuplicateError]},
	{"skipped", as[*SkippedError]},
	{"quota", as[*QuotaError]},
	{"too_large", as[*TooLargeError]},
	{"conflict", apierrors.IsConflict},
	{"forbidden", apierrors.IsForbidden},
	{"unauthorized", apierrors.IsUnauthorized},
	{"not_found", apierrors.IsNotFound},
	{"exists", apierrors.IsAlreadyExists},
	{"invalid", func(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }},
	{"too_large", apierrors.IsRequestEntityTooLargeError},
	{"busy", func(err error) bool { return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) }},
	{"timeout", func(err error) bool { return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) }},
	{"server", func(err error) bool {
		return apierrors.IsInternalError(err) || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	}},
}

// Reason is a short name of the kind of err: one of a fixed set, "" for nil.
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
