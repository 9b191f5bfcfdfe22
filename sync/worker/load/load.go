// Package load has the worker of test jobs.
package load

import (
	"context"
	"fmt"
	"time"

	"limpet/sync/api/admission"
	"limpet/sync/jobs"
	"limpet/sync/kube"
)

// Worker is the worker of test jobs, which put load on a queue: they wait, report progress, and
// touch nothing else.
type Worker struct{}

// Action implements jobs.Worker.
func (Worker) Action() string { return "test" }

// Ready implements jobs.Worker.
func (Worker) Ready(context.Context, jobs.Task) error { return nil }

// Run implements jobs.Worker. It spreads the progress updates over the duration.
func (Worker) Run(ctx context.Context, t *jobs.Task) error {
	if errs := admission.Check(t.Object, nil); len(errs) > 0 { // an API that has only the CRDs accepts anything
		return errs.ToAggregate()
	}
	took, err := time.ParseDuration(t.Job.Spec.Test.Duration)
	if err != nil {
		return fmt.Errorf("spec.test.duration: %w", err)
	}
	n := t.Job.Spec.Test.ProgressUpdates
	step := took / time.Duration(max(n, 1))
	for i := range max(n, 1) {
		if n > 0 {
			t.Progress.Count(i+1, n)
			t.Progress.SetMessage(ctx, fmt.Sprintf("progress update %d of %d", i+1, n))
		}
		if err := kube.Sleep(ctx, step); err != nil {
			return err
		}
	}
	return nil
}
