package jobs

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
)

// A job that has ended can come back with its UID: a state file that was rebuilt
// after damage may hold an old copy of it in its embedded API, and a server may be
// restored from a backup. The history knows it, so it is not done again.

// endedHere says whether this agent has ended a job and has told the API so. A
// record that the API was not told of does not count: the job went to others.
func (c *Controller) endedHere(ctx context.Context, uid string) (bool, error) {
	found, err := c.store.History(ctx, state.Query{UID: uid, Limit: 1})
	if err != nil || len(found) == 0 {
		return false, err
	}
	return found[0].HistoricJob == posted || found[0].HistoricJob == unavailable, nil
}

// bury takes a job out of the queue that has ended before.
func (c *Controller) bury(ctx context.Context, job *unstructured.Unstructured) verdict {
	a := aboutOf(job)
	if err := c.server.deleteJob(ctx, a.key, a.uid, job.GetResourceVersion()); err != nil && !apierrors.IsNotFound(err) {
		return c.retryAfter(err)
	}
	if err := c.store.DropClaim(ctx, a.uid); err != nil {
		return verdict{retry: true}
	}
	c.mu.Lock()
	delete(c.unsettled, a.uid)
	delete(c.resting, a.uid)
	c.mu.Unlock()
	c.tell(EventNote, a, "removed from the queue: its end is in the history already")
	return verdict{calm: true}
}

// comesBack says whether a job that nobody else holds has ended before.
func (c *Controller) comesBack(ctx context.Context, job *unstructured.Unstructured) (bool, verdict) {
	switch ended, err := c.endedHere(ctx, string(job.GetUID())); {
	case err != nil:
		return true, verdict{retry: true}
	case ended:
		return true, c.bury(ctx, job)
	}
	return false, verdict{}
}
