package webhook

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
)

// TestMissedPushIsRetried: after which answers of the API.
func TestMissedPushIsRetried(t *testing.T) {
	t.Parallel()
	jobs := api.Jobs.GroupResource()
	for err, want := range map[error]bool{
		apierrors.NewAlreadyExists(jobs, "x-sync"): true, apierrors.NewInternalError(errors.New("etcd")): true,
		apierrors.NewTooManyRequests("", 1):   true,
		apierrors.NewForbidden(jobs, "", nil): false, apierrors.NewNotFound(jobs, "x"): false, apierrors.NewBadRequest("no"): false,
	} {
		if got := pullAgain(err); (got > 0) != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
