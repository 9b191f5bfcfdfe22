package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/repos"
)

const (
	// callTimeout bounds one request for a webhook with all its repeats.
	callTimeout = 5 * time.Second
	// secretFor is how long the Secret of a hook is kept that the API has: strangers
	// decide when it is needed, and must not make the agent ask for it each time.
	secretFor = 10 * time.Second
	// maxCachedSecrets bounds those Secrets.
	maxCachedSecrets = 1000
	// missedPoll is the pause until a missed push is tried again while a pull is under
	// way, and missedRetry after the API could not be asked.
	missedPoll  = 2 * time.Second
	missedRetry = 15 * time.Second
)

// ClusterOptions configures a Cluster. All must be set.
type ClusterOptions struct {
	Client      *kube.Client
	Repos, Jobs *kube.Informer
	Own         *state.Store // of the secrets that limpet has made
	Given       auth.Places  // of those that people have
	Suspensions *repos.Suspensions
	Embedded    bool              // the API is the embedded one
	Reconciles  bool              // this agent owns the status of Repositories
	Pulled      func(k repos.Key) // a push that came during a pull is pulled
	Logger      *slog.Logger
}

// Cluster is the Store of an agent.
type Cluster struct {
	o      ClusterOptions
	missed workqueue.TypedDelayingInterface[repos.Key]
}

// NewCluster returns a Cluster; RetryPulls must run beside it.
func NewCluster(o ClusterOptions) *Cluster {
	o.Given.Secrets = &cachedSecrets{from: o.Given.Secrets, cached: lru.New(maxCachedSecrets)}
	return &Cluster{o: o, missed: workqueue.NewTypedDelayingQueue[repos.Key]()}
}

// cachedSecrets reads core Secrets, each at most once in secretFor. While the API is
// unavailable the last value stays valid.
type cachedSecrets struct {
	from   auth.Secrets
	cached *lru.Cache // of cachedSecret, by namespace and name
}

type cachedSecret struct {
	data map[string][]byte // nil = there is none
	at   time.Time
}

// Secret implements auth.Secrets.
func (s *cachedSecrets) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	key := namespace + "/" + name
	before, known := s.cached.Get(key)
	kept, _ := before.(cachedSecret)
	if known && time.Since(kept.at) < secretFor {
		return kept.data, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	data, err := s.from.Secret(ctx, namespace, name)
	switch {
	case err == nil:
		kept.data = data
	case !known:
		return nil, err
	}
	s.cached.Add(key, cachedSecret{kept.data, time.Now()})
	return kept.data, nil
}

// Blind implements Store.
func (c *Cluster) Blind() bool {
	_, err := c.o.Client.Down()
	return err != nil || !c.o.Repos.HasSynced()
}

// Now implements Store.
func (c *Cluster) Now() time.Time {
	now, _, ok := c.o.Client.Clock().Now()
	if !ok {
		return time.Time{}
	}
	return now
}

// Repository implements Store.
func (c *Cluster) Repository(ctx context.Context, namespace, name string) *Repository {
	u, ok := c.o.Repos.Get(namespace, name)
	if !ok {
		return nil
	}
	repo, err := RepositoryOf(u)
	if err == nil {
		repo.Suspended = c.suspended(u)
		repo.Secrets, repo.Given, err = c.secrets(ctx, u)
	}
	if err != nil {
		c.o.Logger.Debug("read webhook secret", "repo", name, "namespace", namespace, "err", err)
		return nil
	}
	return repo
}

// suspended reports whether a Repository is suspended on this agent.
func (c *Cluster) suspended(u *unstructured.Unstructured) bool {
	_, on := c.o.Suspensions.Of(repos.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, string(u.GetUID()))
	return on
}

// secrets returns the secrets of a webhook: those that limpet created, one per line and
// the current one first, or else a configured one.
func (c *Cluster) secrets(ctx context.Context, u *unstructured.Unstructured) (secrets [][]byte, given bool, err error) {
	k := repos.Key{Namespace: u.GetNamespace(), Name: u.GetName()}
	own, err := c.o.Own.Secret(ctx, repos.WebhookSecretKey(k))
	if err == nil {
		return bytes.Fields(own), false, nil
	}
	if !errors.Is(err, state.ErrNotFound) {
		return nil, false, err
	}
	l := auth.Lookup{Namespace: k.Namespace, Repository: k.Name, Secure: map[string]string{}}
	view, err := api.RepositoryView(u)
	if err != nil {
		return nil, false, err
	}
	for field, value := range view.Secure {
		l.Secure[field] = value.Name
	}
	value, err := c.o.Given.Webhook(ctx, l)
	if err != nil || value == nil {
		return nil, false, err
	}
	return [][]byte{value}, true, nil
}

// Queue implements Store.
func (c *Cluster) Queue(ctx context.Context, r *Repository, spec map[string]any) (*unstructured.Unstructured, error) {
	action, _ := spec["action"].(string)
	if action == "pr" {
		// A server that has a webhook endpoint of its own runs such jobs; limpet does not.
		runs := false
		if !c.o.Embedded {
			var err error
			if runs, err = c.o.Client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/webhook"); err != nil {
				return nil, err
			}
		}
		if !runs {
			return nil, ErrNotRun
		}
	}
	job, err := c.o.Client.Submit(ctx, r.Namespace, r.Name, spec, nil)
	if action == "pull" && apierrors.IsAlreadyExists(err) {
		c.missed.Add(repos.Key{Namespace: r.Namespace, Name: r.Name})
	}
	return job, err
}

// A push during a pull of its Repository is refused: such a job exists already, and
// it may have read the branch before the push. GitHub does not redeliver by itself,
// so the push would wait for the interval. It is pulled when that job has ended. This
// takes seconds, so it is in memory only: after a crash the interval finds the push.

// RetryPulls queues pulls for missed pushes until ctx ends.
func (c *Cluster) RetryPulls(ctx context.Context) {
	defer context.AfterFunc(ctx, c.missed.ShutDown)()
	for {
		k, over := c.missed.Get()
		if over {
			return
		}
		if again := c.retryPull(ctx, k); again > 0 {
			c.missed.AddAfter(k, again)
		}
		c.missed.Done(k)
	}
}

// retryPull queues the pull of a missed push, and returns when to try again.
func (c *Cluster) retryPull(ctx context.Context, k repos.Key) (again time.Duration) {
	if u, ok := c.o.Repos.Get(k.Namespace, k.Name); !ok || c.suspended(u) {
		return 0
	}
	if job, ok := c.o.Jobs.Lookup(k.Namespace, api.JobName(k.Name, "pull")); ok && job.Text(pathRepository) == k.Name {
		return missedPoll
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.o.Client.Submit(ctx, k.Namespace, k.Name, map[string]any{"action": "pull", "pull": map[string]any{"incremental": true}}, nil)
	if err == nil {
		c.o.Pulled(k)
		return 0
	}
	if again = pullAgain(err); again == 0 { // the interval finds the push
		c.o.Logger.Debug("skip pull of missed push", "repo", k.Name, "namespace", k.Namespace, "err", err)
	}
	return again
}

// pullAgain returns when a refused pull may be accepted; zero = not soon.
func pullAgain(err error) time.Duration {
	if apierrors.IsAlreadyExists(err) {
		return missedPoll
	}
	if _, unavailable := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err)); unavailable || apierrors.IsInternalError(err) {
		return missedRetry
	}
	return 0
}

var pathRepository = kube.PathTo("spec", "repository")

// Seen implements Store.
func (c *Cluster) Seen(ctx context.Context, r *Repository) error {
	if !c.o.Reconciles {
		return nil // another controller owns the status
	}
	now := c.Now()
	if now.IsZero() {
		now = time.Now()
	}
	body, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status/webhook/lastEvent", "value": now.UnixMilli()}})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/apis/%s/namespaces/%s/repositories/%s/status", api.Repositories.GroupVersion(), r.Namespace, r.Name)
	_, _, err = c.o.Client.Do(ctx, http.MethodPatch, path, nil, "application/json-patch+json", body)
	return err
}

var _ Store = (*Cluster)(nil)
