package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		test   map[string]any
		cancel time.Duration // after it; 0 = never
		took   time.Duration // 0 = refused
	}{
		{"with updates", map[string]any{"duration": "10s", "progressUpdates": int64(7)}, 0, 10 * time.Second},
		{"without", map[string]any{"duration": "15m"}, 0, 15 * time.Minute},
		{"cancelled", map[string]any{"duration": "15m", "progressUpdates": int64(1000)}, 3 * time.Second, 3 * time.Second},
		{"too long", map[string]any{"duration": "15m1s"}, 0, 0},
		{"too dense", map[string]any{"duration": "1s", "progressUpdates": int64(3)}, 0, 0},
		{"no options", nil, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"action": "test", "repository": "r"}}}
			u.SetGroupVersionKind(api.Jobs.GroupVersion().WithKind("Job"))
			if c.test != nil {
				u.Object["spec"].(map[string]any)["test"] = c.test
			}
			job, err := api.JobView(u)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			if c.cancel > 0 {
				time.AfterFunc(c.cancel, func() { stop(jobs.ErrCancelled) })
			}
			began := time.Now()
			err = Worker{}.Run(ctx, &jobs.Task{Object: u, Job: job, Progress: jobs.NewProgress()})
			took := time.Since(began).Truncate(time.Millisecond)
			if want := c.took; took > want || took < want-time.Millisecond || (err != nil) != (c.cancel > 0 || want == 0) ||
				c.cancel > 0 && !errors.Is(err, jobs.ErrCancelled) {
				t.Errorf("%s: %s, %v", c.name, took, err)
			}
		})
	}
}
