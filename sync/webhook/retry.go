package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
)

// A push during a job of its Repository, or of its pull request, is refused: such a job exists
// already, and it may have read the branch before the push. GitHub does not redeliver by itself, so
// the push would wait for the interval, or for ever. Its job is queued when that one has ended.
// This takes seconds, so it is in memory only: after a crash the interval finds the push, and the
// next push to the pull request its comment.

// missed is a push whose job was refused.
type missed struct {
	key reconcile.Key
	pr  int64 // number of its pull request; 0 = it is to be pulled
}

// job returns the name and the spec of its job.
func (m missed) job() (name string, spec map[string]any) {
	if m.pr != 0 {
		return fmt.Sprintf("%s-%d", api.JobName(m.key.Name, "pr"), m.pr), map[string]any{"action": "pr", "pr": map[string]any{"pr": m.pr}}
	}
	return api.JobName(m.key.Name, "pull"), map[string]any{"action": "pull", "pull": map[string]any{"incremental": true}}
}

// RetryPulls queues the jobs of missed pushes until ctx ends.
func (c *Cluster) RetryPulls(ctx context.Context) {
	defer context.AfterFunc(ctx, c.missed.ShutDown)()
	for {
		m, over := c.missed.Get()
		if over {
			return
		}
		if again := c.retry(ctx, m); again > 0 {
			c.missed.AddAfter(m, again)
		}
		c.missed.Done(m)
	}
}

// retry queues the job of a missed push, and returns when to try again.
func (c *Cluster) retry(ctx context.Context, m missed) (again time.Duration) {
	if u, ok := c.o.Repos.Get(m.key.Namespace, m.key.Name); !ok || c.suspended(u) {
		return 0
	}
	name, spec := m.job()
	if job, ok := c.o.Jobs.Lookup(m.key.Namespace, name); ok && job.Text(pathRepository) == m.key.Name {
		return missedPoll
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.o.Client.Submit(ctx, m.key.Namespace, m.key.Name, spec, nil)
	if err == nil {
		if m.pr == 0 {
			c.o.Pulled(m.key)
		}
		return 0
	}
	if again = pullAgain(err); again == 0 { // the interval finds the push
		c.o.Logger.Debug("skip job of missed push", "repo", m.key.Name, "namespace", m.key.Namespace, "job", name, "err", err)
	}
	return again
}

// pullAgain returns when a refused pull may be accepted; zero = not soon.
func pullAgain(err error) time.Duration {
	_, unavailable := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err))
	switch {
	case apierrors.IsAlreadyExists(err):
		return missedPoll
	case unavailable || apierrors.IsInternalError(err):
		return missedRetry
	}
	return 0
}
