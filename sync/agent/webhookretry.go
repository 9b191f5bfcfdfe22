package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
)

var pathRepository = kube.PathTo("spec", "repository")

// A push during a pull of its Repository is refused: such a job exists already, and
// it may have read the branch before the push. GitHub does not redeliver by itself,
// so the push would wait for the interval. It stays pending here until that job has
// ended, and is pulled then. This takes seconds, so it is kept in memory only: after
// a crash the interval finds the push.

// retryPullsAfter is the delay after a failed request.
const retryPullsAfter = 15 * time.Second

// pendingPulls are the Repositories with a push that a running pull may have missed.
type pendingPulls struct {
	wake chan struct{} // capacity 1: pending pulls may be ready

	mu  sync.Mutex // guards all
	all map[repoKey]bool
}

type repoKey struct{ namespace, name string }

func newPendingPulls() *pendingPulls {
	return &pendingPulls{wake: make(chan struct{}, 1), all: map[repoKey]bool{}}
}

func (m *pendingPulls) add(namespace, name string) {
	m.mu.Lock()
	m.all[repoKey{namespace, name}] = true
	m.mu.Unlock()
	m.notify()
}

// notify never blocks.
func (m *pendingPulls) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *pendingPulls) keys() []repoKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all))
}

func (m *pendingPulls) drop(key repoKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// retryPulls queues pulls for missed pushes until ctx ends.
func (d *webhookStore) retryPulls(ctx context.Context) {
	d.agent.jobs.AddHandler(kube.Handler{Any: d.pending.notify})
	for {
		var later <-chan time.Time
		for _, key := range d.pending.keys() {
			if seen, ok := d.agent.jobs.Lookup(key.namespace, api.JobName(key.name, "pull")); ok && seen.Text(pathRepository) == key.name {
				continue // its end notifies
			}
			if !d.retryPull(ctx, key) {
				later = time.After(retryPullsAfter)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-d.pending.wake:
		case <-later:
		}
	}
}

// retryPull queues the pull of a missed push. It returns false when it has to be
// retried.
func (d *webhookStore) retryPull(ctx context.Context, key repoKey) bool {
	if u, ok := d.agent.repos.Get(key.namespace, key.name); !ok || d.suspended(u) {
		d.pending.drop(key)
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	d.pending.drop(key) // a later push is a new one
	_, err := d.agent.client.Submit(ctx, key.namespace, key.name, map[string]any{"action": "pull", "pull": map[string]any{"incremental": true}}, nil)
	switch {
	case err == nil:
		d.agent.activity.AddEvent(snapshot.Event{At: time.Now(), Level: "info", Repo: key.name, Text: "webhook: pull queued for a push that came during the last one"})
	case retryable(err):
		d.pending.mu.Lock()
		d.pending.all[key] = true
		d.pending.mu.Unlock()
		return false
	default: // the Repository accepts no pulls now; the interval finds the push
		d.agent.log.Debug("skip pull of missed push", "repo", key.name, "namespace", key.namespace, "err", err)
	}
	return true
}

// retryable reports whether a refused pull may be accepted later.
func retryable(err error) bool {
	_, unavailable := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err))
	return unavailable || apierrors.IsAlreadyExists(err) || apierrors.IsInternalError(err)
}
