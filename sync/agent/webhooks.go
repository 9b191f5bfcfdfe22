package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/sync/webhook"
)

// Webhooks configures the receiver of webhooks. Without a certificate it needs a TLS
// proxy in front.
type Webhooks struct {
	Listen            string // address; "" = nowhere
	URL               string // https address at which hosts reach it, for those that are asked for webhooks; "" = not known
	CertFile, KeyFile string
	Trusted           []netip.Prefix // proxies whose X-Forwarded-For counts
}

func (w Webhooks) check() error {
	if (w.CertFile == "") != (w.KeyFile == "") {
		return errors.New("a certificate and its key go together: one of --webhook-cert-file and --webhook-key-file is missing")
	}
	if w.URL == "" {
		return nil
	}
	if w.Listen == "" {
		return errors.New("--webhook-url is where hosts reach --webhook-listen, which is missing")
	}
	if u, err := url.Parse(w.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("--webhook-url must be an address that begins with https:// and has no user and no query")
	}
	return nil
}

// listenRetry is the delay after a failed listen: an agent may start before the
// network of its host.
const listenRetry = 15 * time.Second

// webhooks receives webhooks until ctx ends. Repositories are pulled at their
// interval anyway, so an address in use is logged and retried.
func (a *Agent) webhooks(ctx context.Context) error {
	w := a.cfg.Webhooks
	incremental := webhook.Listed(a.cfg.Limits.IncrementalChanges)
	if a.embedded != nil {
		incremental = nil // limpet alone runs the pulls
	}
	store := a.newWebhookStore()
	receiver, err := webhook.New(ctx, webhook.Options{
		Store: store, Facts: a.cfg.Store, Incremental: incremental, Trusted: w.Trusted,
		Count: a.metrics.WebhookRequest, Processed: a.metrics.WebhookEvent, Accepted: a.addWebhookEvent,
		Logger: a.log.With("component", "webhook"),
	})
	if err != nil {
		return err
	}
	ln, err := a.webhookListener()
	for logged := false; err != nil; ln, err = a.webhookListener() {
		if !logged {
			a.log.Warn("no webhooks", "address", w.Listen, "err", err, "next", "--webhook-listen with another address", "again_in", listenRetry)
			logged = true
		}
		select {
		case <-time.After(listenRetry):
		case <-ctx.Done():
			return nil
		}
	}
	a.log.Info("webhooks", "address", ln.Addr().String(), "tls", w.CertFile != "", "path", webhook.Pattern)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return receiver.Serve(ctx, ln) })
	g.Go(func() error { store.retryPulls(ctx); return nil })
	return g.Wait()
}

func (a *Agent) webhookListener() (net.Listener, error) {
	w := a.cfg.Webhooks
	ln, err := net.Listen("tcp", w.Listen)
	if err != nil {
		return nil, err
	}
	gated := webhook.Gate(ln, w.Trusted)
	if w.CertFile == "" {
		return gated, nil
	}
	secure, err := apiserver.ListenTLS(gated, w.CertFile, w.KeyFile, "http/1.1")
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return secure, nil
}

// addWebhookEvent shows an event on the dashboard.
func (a *Agent) addWebhookEvent(e webhook.Accepted) {
	line := fmt.Sprintf("webhook: %s", e.Verdict.Message)
	switch {
	case e.Event.Kind == webhook.Push && e.Job != "":
		line = fmt.Sprintf("webhook: push to %s → pull queued", cmp.Or(e.Repository.Branch, "the repository"))
	case e.Job != "":
		line = fmt.Sprintf("webhook: pull request %d %s → pr queued", e.Event.Number, e.Event.Action)
	}
	a.activity.AddEvent(snapshot.Event{At: time.Now(), Level: "info", Repo: e.Repository.Name, Text: text.Clean(line)})
}

const (
	// requestTimeout bounds one request for a webhook with all its repeats.
	requestTimeout = 5 * time.Second
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

// webhookStore is the agent as the receiver sees it.
type webhookStore struct {
	*access
	repos       *kube.Informer
	jobs        *kube.Informer
	suspensions *repos.Suspensions
	activity    *snapshot.Activity
	reconciles  bool

	cached *lru.Cache // of cachedSecret, by namespace and name
	missed workqueue.TypedDelayingInterface[repos.Key]
}

type cachedSecret struct {
	value []byte // nil = there is none
	at    time.Time
}

func (a *Agent) newWebhookStore() *webhookStore {
	return &webhookStore{
		access:      &a.access,
		repos:       a.repos,
		jobs:        a.jobs,
		suspensions: a.suspensions,
		activity:    a.activity,
		reconciles:  a.reconciles(),
		cached:      lru.New(maxCachedSecrets),
		missed:      workqueue.NewTypedDelayingQueue[repos.Key](),
	}
}

// Blind implements webhook.Store.
func (d *webhookStore) Blind() bool {
	_, err := d.client.Down()
	return err != nil || !d.repos.HasSynced()
}

// Now implements webhook.Store.
func (d *webhookStore) Now() time.Time {
	now, _, ok := d.client.Clock().Now()
	if !ok {
		return time.Time{}
	}
	return now
}

// Repository implements webhook.Store.
func (d *webhookStore) Repository(ctx context.Context, namespace, name string) *webhook.Repository {
	u, ok := d.repos.Get(namespace, name)
	if !ok {
		return nil
	}
	repo, err := webhook.RepositoryOf(u)
	if err == nil {
		repo.Suspended = d.suspended(u)
		repo.Secrets, repo.Given, err = d.webhookSecrets(ctx, u)
	}
	if err != nil {
		d.cfg.Logger.Debug("read webhook secret", "repo", name, "namespace", namespace, "err", err)
		return nil
	}
	return repo
}

// suspended reports whether a Repository is suspended on this agent.
func (d *webhookStore) suspended(u *object) bool {
	_, on := d.suspensions.Of(repos.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, string(u.GetUID()))
	return on
}

// webhookSecrets returns the secrets of a webhook: those that limpet created, one per
// line and the current one first, or else a configured one.
func (d *webhookStore) webhookSecrets(ctx context.Context, u *object) (secrets [][]byte, given bool, err error) {
	own, err := d.cfg.Store.Secret(ctx, repos.WebhookSecretKey(repos.Key{Namespace: u.GetNamespace(), Name: u.GetName()}))
	if err == nil {
		return bytes.Fields(own), false, nil
	}
	if !errors.Is(err, state.ErrNotFound) {
		return nil, false, err
	}
	value, err := d.givenSecret(ctx, u)
	if value = bytes.TrimSpace(value); err != nil || len(value) == 0 {
		return nil, false, err
	}
	return [][]byte{value}, true, nil
}

const webhookSecretField = "webhookSecret"

func (d *webhookStore) givenSecret(ctx context.Context, u *object) ([]byte, error) {
	namespace, name := u.GetNamespace(), u.GetName()
	secret, _, _ := unstructured.NestedString(u.Object, "secure", webhookSecretField, "name")
	if secret != "" {
		if d.embedded != nil {
			value, err := d.embedded.SecretOf(ctx, "repositories", namespace, name, webhookSecretField, "")
			if err == nil || !errors.Is(err, state.ErrNotFound) {
				return value, err
			}
		}
		if value, err := d.fromAPI(ctx, namespace, secret); err != nil || value != nil {
			return value, err
		}
	}
	if d.cfg.CredentialsDir == "" {
		return nil, nil
	}
	return auth.Value(d.cfg.CredentialsDir, namespace, name, webhookSecretField)
}

// fromAPI reads a core Secret, at most once in secretFor. While the API is
// unavailable the last value stays valid.
func (d *webhookStore) fromAPI(ctx context.Context, namespace, secret string) ([]byte, error) {
	key := namespace + "/" + secret
	before, known := d.cached.Get(key)
	kept, _ := before.(cachedSecret)
	if known && time.Since(kept.at) < secretFor {
		return kept.value, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	data, err := d.secrets().Secret(ctx, namespace, secret)
	switch {
	case err == nil:
		kept.value = secretIn(data)
	case !known:
		return nil, err
	}
	d.cached.Add(key, cachedSecret{kept.value, time.Now()})
	return kept.value, nil
}

// secretIn returns the secret of a webhook among the keys of a core Secret; token is
// the name in a Receiver of Flux.
func secretIn(data map[string][]byte) []byte {
	for _, field := range []string{webhookSecretField, "token", "secret"} {
		if len(data[field]) > 0 {
			return data[field]
		}
	}
	return nil
}

// Queue implements webhook.Store.
func (d *webhookStore) Queue(ctx context.Context, r *webhook.Repository, spec map[string]any) (*unstructured.Unstructured, error) {
	action, _ := spec["action"].(string)
	if action == "pr" {
		// A server that has a webhook endpoint of its own runs such jobs; limpet does not.
		runs := false
		if d.embedded == nil {
			var err error
			if runs, err = d.client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/webhook"); err != nil {
				return nil, err
			}
		}
		if !runs {
			return nil, webhook.ErrNotRun
		}
	}
	job, err := d.client.Submit(ctx, r.Namespace, r.Name, spec, nil)
	if action == "pull" && apierrors.IsAlreadyExists(err) {
		d.missed.Add(repos.Key{Namespace: r.Namespace, Name: r.Name})
	}
	return job, err
}

// A push during a pull of its Repository is refused: such a job exists already, and
// it may have read the branch before the push. GitHub does not redeliver by itself,
// so the push would wait for the interval. It is pulled when that job has ended. This
// takes seconds, so it is in memory only: after a crash the interval finds the push.

// retryPulls queues pulls for missed pushes until ctx ends.
func (d *webhookStore) retryPulls(ctx context.Context) {
	defer context.AfterFunc(ctx, d.missed.ShutDown)()
	for {
		k, over := d.missed.Get()
		if over {
			return
		}
		if again := d.retryPull(ctx, k); again > 0 {
			d.missed.AddAfter(k, again)
		}
		d.missed.Done(k)
	}
}

// retryPull queues the pull of a missed push, and returns when to try again.
func (d *webhookStore) retryPull(ctx context.Context, k repos.Key) (again time.Duration) {
	if u, ok := d.repos.Get(k.Namespace, k.Name); !ok || d.suspended(u) {
		return 0
	}
	if job, ok := d.jobs.Lookup(k.Namespace, api.JobName(k.Name, "pull")); ok && job.Text(pathRepository) == k.Name {
		return missedPoll
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := d.client.Submit(ctx, k.Namespace, k.Name, map[string]any{"action": "pull", "pull": map[string]any{"incremental": true}}, nil)
	if err == nil {
		d.activity.AddEvent(snapshot.Event{At: time.Now(), Level: "info", Repo: k.Name,
			Text: "webhook: pull queued for a push that came during the last one"})
		return 0
	}
	if again = retryAfter(err); again == 0 { // the interval finds the push
		d.cfg.Logger.Debug("skip pull of missed push", "repo", k.Name, "namespace", k.Namespace, "err", err)
	}
	return again
}

// retryAfter returns when a refused pull may be accepted; zero = not soon.
func retryAfter(err error) time.Duration {
	if apierrors.IsAlreadyExists(err) {
		return missedPoll
	}
	if _, unavailable := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err)); unavailable || apierrors.IsInternalError(err) {
		return missedRetry
	}
	return 0
}

var pathRepository = kube.PathTo("spec", "repository")

// Seen implements webhook.Store.
func (d *webhookStore) Seen(ctx context.Context, r *webhook.Repository) error {
	if !d.reconciles {
		return nil // another controller owns the status
	}
	now := d.Now()
	if now.IsZero() {
		now = time.Now()
	}
	body, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status/webhook/lastEvent", "value": now.UnixMilli()}})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/apis/%s/namespaces/%s/repositories/%s/status", api.Repositories.GroupVersion(), r.Namespace, r.Name)
	_, _, err = d.client.Do(ctx, http.MethodPatch, path, nil, "application/json-patch+json", body)
	return err
}

var _ webhook.Store = (*webhookStore)(nil)
