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

// A push that comes while a pull of its Repository runs is refused: there is such
// a job already, and it may have read the branch before the push. GitHub does not
// deliver again by itself, so the push would wait for the interval. Here it is
// missed until that job is gone, and pulled then. It is a matter of seconds, so
// it is kept in memory alone: after a crash the interval finds the push.

// retryPullsAfter is how long a missed push waits after the API could not be asked.
const retryPullsAfter = 15 * time.Second

// pendingPulls are the Repositories with a push that no pull may have seen.
type pendingPulls struct {
	wake chan struct{} // capacity 1: "something may be to do"

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

// retryPulls asks for the pulls of missed pushes until ctx ends.
func (d *webhookStore) retryPulls(ctx context.Context) {
	d.agent.jobs.AddHandler(kube.Handler{Any: d.pending.notify})
	for {
		var later <-chan time.Time
		for _, key := range d.pending.keys() {
			if seen, ok := d.agent.jobs.Lookup(key.namespace, api.JobName(key.name, "pull")); ok && seen.Text(pathRepository) == key.name {
				continue // its end wakes us
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

// retryPull asks for the pull of a missed push. It is false when that has to be
// tried again.
func (d *webhookStore) retryPull(ctx context.Context, key repoKey) bool {
	if u, ok := d.agent.repos.Get(key.namespace, key.name); !ok || d.suspended(u) {
		d.pending.drop(key)
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	d.pending.drop(key) // a push from here on counts anew
	_, err := d.agent.client.Submit(ctx, key.namespace, key.name, map[string]any{"action": "pull", "pull": map[string]any{"incremental": true}}, nil)
	switch {
	case err == nil:
		d.agent.activity.AddEvent(snapshot.Event{At: time.Now(), Level: "info", Repo: key.name, Text: "webhook: pull queued for a push that came during the last one"})
	case retryable(err):
		d.pending.mu.Lock()
		d.pending.all[key] = true
		d.pending.mu.Unlock()
		return false
	default: // the Repository takes no pulls now; it gets one when it does again
		d.agent.log.Debug("a missed push is not pulled", "repo", key.name, "namespace", key.namespace, "err", err)
	}
	return true
}

// retryable reports that a pull which was not taken may be taken later.
func retryable(err error) bool {
	_, away := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err))
	return away || apierrors.IsAlreadyExists(err) || apierrors.IsInternalError(err)
}
