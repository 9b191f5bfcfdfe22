package webhook

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// TestFloodOfDeliveries: whatever the API answers, it is asked for a Secret once in ten
// seconds, and its last value stays while it cannot be asked.
func TestFloodOfDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var fault error
		s := &cachedSecrets{cached: lru.New(maxCachedSecrets), from: auth.Secrets(
			func(ctx context.Context, _, name string) (map[string][]byte, error) {
				asked.Add(1)
				time.Sleep(time.Second)
				if name == "none" || fault != nil {
					return nil, fault
				}
				return map[string][]byte{"token": []byte("x")}, ctx.Err()
			})}
		for _, step := range []struct {
			name  string
			fault error
			found bool
		}{{"there", nil, true}, {"there", errors.New("away"), true}, {"none", nil, false}, {"fails", errors.New("away"), false}} {
			fault = step.fault
			asked.Store(0)
			gone, stop := context.WithCancel(t.Context())
			stop() // a stranger does not wait for the answer
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					data, err := s.secret(gone, "default", step.name)
					if again, _ := s.secret(t.Context(), "default", step.name); (len(data) > 0) != step.found || len(again) != len(data) ||
						(err != nil) != (fault != nil && !step.found) {
						t.Errorf("%s: %d and %d keys, %v", step.name, len(data), len(again), err)
					}
				})
			}
			all.Wait()
			if n := asked.Load(); n != 1 {
				t.Errorf("%s: asked %d times", step.name, n)
			}
			time.Sleep(secretFor)
		}
		fault = errors.New("away")
		s.secret(t.Context(), "default", "late")
		fault = nil
		time.Sleep(time.Second)
		if data, err := s.secret(t.Context(), "default", "late"); len(data) == 0 {
			t.Errorf("a second after a failure: %v", err)
		}
	})
}

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
