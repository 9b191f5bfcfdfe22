package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/repos"
)

const (
	callTimeout      = 5 * time.Second  // of one request for a webhook with all its repeats
	secretFor        = 10 * time.Second // how long the Secret of a webhook is kept that the API has
	maxCachedSecrets = 1000
	missedPoll       = 2 * time.Second  // until a missed push is tried again while a pull is under way
	missedRetry      = 15 * time.Second // the same after the API could not be asked
)

// ClusterOptions configures a Cluster. All must be set.
type ClusterOptions struct {
	Client      *kube.Client
	Repos, Jobs *kube.Informer
	Own         *state.Store // of the secrets that limpet has made
	Given       auth.Places  // of those that people have
	Suspensions *repos.Suspensions
	Embedded    bool                  // the API is the embedded one
	Reviews     bool                  // this agent runs jobs for pull requests
	Reconciles  bool                  // this agent owns the status of Repositories
	Pulled      func(k reconcile.Key) // a push that came during a pull is pulled
	Logger      *slog.Logger
}

// Cluster is the Store of an agent.
type Cluster struct {
	o      ClusterOptions
	missed workqueue.TypedDelayingInterface[missed]
}

// NewCluster returns a Cluster; RetryPulls must run beside it.
func NewCluster(o ClusterOptions) *Cluster {
	o.Given.Secrets = (&cachedSecrets{from: o.Given.Secrets, cached: lru.New(maxCachedSecrets)}).secret
	return &Cluster{o: o, missed: workqueue.NewTypedDelayingQueue[missed]()}
}

// cachedSecrets reads core Secrets, each at most once in secretFor, and once in a second after a
// failure: strangers decide when it is needed, and a flood of theirs must not reach the API. While
// the API is unavailable the last value stays valid.
type cachedSecrets struct {
	from    auth.Secrets
	reading singleflight.Group // by namespace and name
	cached  *lru.Cache         // of cachedSecret, by the same
}

type cachedSecret struct {
	data map[string][]byte // nil = there is none
	err  error
	at   time.Time
}

func (s *cachedSecrets) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	key := namespace + "/" + name
	value, _, _ := s.reading.Do(key, func() (any, error) {
		before, _ := s.cached.Get(key)
		kept, known := before.(cachedSecret)
		if old := time.Since(kept.at); known && (old < time.Second || old < secretFor && kept.err == nil) {
			return kept, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // others may wait for the answer
		defer cancel()
		data, err := s.from(ctx, namespace, name)
		if err == nil || !known || kept.err != nil {
			kept.data, kept.err = data, err
		}
		kept.at = time.Now()
		s.cached.Add(key, kept)
		return kept, nil
	})
	kept := value.(cachedSecret)
	return kept.data, kept.err
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
	view, err := api.RepositoryView(u)
	repo := repositoryOf(u, view)
	if err == nil {
		repo.Suspended = c.suspended(u)
		repo.Secrets, repo.Given, err = c.secrets(ctx, reconcile.Key{Namespace: namespace, Name: name}, view.Secure)
	}
	if err != nil {
		c.o.Logger.Debug("read webhook secret", "repo", name, "namespace", namespace, "err", err)
		return nil
	}
	return repo
}

// suspended reports whether a Repository is suspended on this agent.
func (c *Cluster) suspended(u *unstructured.Unstructured) bool {
	_, on := c.o.Suspensions.Of(reconcile.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, string(u.GetUID()))
	return on
}

// secrets returns the secrets of a webhook: those that limpet created, one per line and
// the current one first, or else a configured one.
func (c *Cluster) secrets(ctx context.Context, k reconcile.Key, secure map[string]api.SecureValue) (secrets [][]byte, given bool, err error) {
	own, err := c.o.Own.Secret(ctx, repos.WebhookSecretKey(k))
	if err == nil {
		return bytes.Fields(own), false, nil
	}
	if !errors.Is(err, state.ErrNotFound) {
		return nil, false, err
	}
	l := auth.Lookup{Namespace: k.Namespace, Repository: k.Name, Secure: map[string]string{}}
	for field, value := range secure {
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
	if spec["action"] == "pr" && !c.o.Reviews {
		// A server that has a webhook endpoint of its own runs such jobs.
		runs, err := false, error(nil)
		if !c.o.Embedded {
			runs, err = c.o.Client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/webhook")
		}
		if err != nil {
			return nil, err
		}
		if !runs {
			return nil, ErrNotRun
		}
	}
	job, err := c.o.Client.Submit(ctx, r.Namespace, r.Name, spec, nil)
	if apierrors.IsAlreadyExists(err) {
		m := missed{key: reconcile.Key{Namespace: r.Namespace, Name: r.Name}}
		if options, is := spec["pr"].(map[string]any); is {
			m.pr, _ = options["pr"].(int64)
		}
		c.missed.Add(m)
	}
	return job, err
}

var pathRepository = kube.PathTo("spec", "repository")

// Seen implements Store.
func (c *Cluster) Seen(ctx context.Context, r *Repository) error {
	if !c.o.Reconciles {
		return nil // another controller owns the status
	}
	now := cmp.Or(c.Now(), time.Now())
	body := fmt.Appendf(nil, `[{"op":"add","path":"/status/webhook/lastEvent","value":%d}]`, now.UnixMilli())
	path := fmt.Sprintf("/apis/%s/namespaces/%s/repositories/%s/status", api.Repositories.GroupVersion(), r.Namespace, r.Name)
	_, _, err := c.o.Client.Do(ctx, http.MethodPatch, path, nil, "application/json-patch+json", body)
	return err
}
