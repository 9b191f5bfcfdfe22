package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
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
	store := &webhookStore{agent: a, cached: map[string]cachedSecret{}, pending: newPendingPulls()}
	receiver, err := webhook.New(ctx, webhook.Options{
		Store: store, Facts: a.cfg.Store, Incremental: incremental, Trusted: w.Trusted,
		Count: a.metrics.WebhookRequest, Processed: a.metrics.WebhookEvent, Accepted: a.addWebhookEvent, Logger: a.log.With("component", "webhook"),
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
		timer := time.NewTimer(listenRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
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

// requestTimeout bounds one request for a webhook with all its repeats.
const requestTimeout = 5 * time.Second

// secretFor is how long the Secret of a hook is kept that the API has: strangers
// decide when it is needed, and must not make the agent ask for it each time.
const secretFor = 10 * time.Second

// webhookStore is the Agent as the receiver sees it.
type webhookStore struct {
	agent *Agent

	reads   singleflight.Group // for Secrets, by their key in kept
	pending *pendingPulls

	mu     sync.Mutex // guards kept
	cached map[string]cachedSecret
}

type cachedSecret struct {
	value []byte // nil = there is none
	at    time.Time
}

// Blind implements webhook.Store.
func (d *webhookStore) Blind() bool {
	_, err := d.agent.client.Down()
	return err != nil || !d.agent.repos.HasSynced()
}

// Now implements webhook.Store.
func (d *webhookStore) Now() time.Time {
	now, _, ok := d.agent.client.Clock().Now()
	if !ok {
		return time.Time{}
	}
	return now
}

// Repository implements webhook.Store.
func (d *webhookStore) Repository(ctx context.Context, namespace, name string) *webhook.Repository {
	u, ok := d.agent.repos.Get(namespace, name)
	if !ok {
		return nil
	}
	repo, err := webhook.RepositoryOf(u)
	if err == nil {
		repo.Suspended = d.suspended(u)
		repo.Secrets, repo.Given, err = d.secrets(ctx, u)
	}
	if err != nil {
		d.agent.log.Debug("read webhook secret", "repo", name, "namespace", namespace, "err", err)
		return nil
	}
	return repo
}

// suspended reports whether a Repository is suspended on this agent.
func (d *webhookStore) suspended(u *object) bool {
	if d.agent.suspensions == nil {
		return false
	}
	_, on := d.agent.suspensions.Of(repos.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, string(u.GetUID()))
	return on
}

// secrets returns the secrets of a webhook: those that limpet created, one per line
// and the current one first, or else a configured one.
func (d *webhookStore) secrets(ctx context.Context, u *object) (secrets [][]byte, given bool, err error) {
	a, namespace, name := d.agent, u.GetNamespace(), u.GetName()
	own, err := a.cfg.Store.Secret(ctx, webhookSecretKey(namespace, name))
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

// webhookSecretKey is the key of the sealed secrets that limpet creates.
func webhookSecretKey(namespace, name string) string { return "webhook/" + namespace + "/" + name }

const webhookSecretField = "webhookSecret"

func (d *webhookStore) givenSecret(ctx context.Context, u *object) ([]byte, error) {
	a, namespace, name := d.agent, u.GetNamespace(), u.GetName()
	secret, _, _ := unstructured.NestedString(u.Object, "secure", webhookSecretField, "name")
	if secret != "" {
		if a.embedded != nil {
			value, err := a.embedded.SecretOf(ctx, namespace, name, webhookSecretField)
			if err == nil || !errors.Is(err, state.ErrNotFound) {
				return value, err
			}
		}
		if value, err := d.fromAPI(ctx, namespace, secret); err != nil || value != nil {
			return value, err
		}
	}
	if a.cfg.CredentialsDir == "" {
		return nil, nil
	}
	return auth.Value(a.cfg.CredentialsDir, namespace, name, webhookSecretField)
}

// fromAPI reads a core Secret, at most once in secretFor. While the API is
// unavailable the last value stays valid.
func (d *webhookStore) fromAPI(ctx context.Context, namespace, secret string) ([]byte, error) {
	key := namespace + "/" + secret
	value, err, _ := d.reads.Do(key, func() (any, error) {
		d.mu.Lock()
		kept, known := d.cached[key]
		d.mu.Unlock()
		if known && time.Since(kept.at) < secretFor {
			return kept.value, nil
		}
		// Other requests share this read, so it must not end with the first one.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		data, err := d.agent.secrets().Secret(ctx, namespace, secret)
		switch {
		case err == nil:
			kept.value = secretIn(data)
		case !known:
			return []byte(nil), err
		}
		d.cache(key, cachedSecret{kept.value, time.Now()})
		return kept.value, nil
	})
	return value.([]byte), err
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

// maxCachedSecrets bounds the cached Secrets.
const maxCachedSecrets = 1000

func (d *webhookStore) cache(key string, secret cachedSecret) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.cached) >= maxCachedSecrets {
		maps.DeleteFunc(d.cached, func(_ string, old cachedSecret) bool { return time.Since(old.at) >= secretFor })
	}
	d.cached[key] = secret
}

// Queue implements webhook.Store.
func (d *webhookStore) Queue(ctx context.Context, r *webhook.Repository, spec map[string]any) (*unstructured.Unstructured, error) {
	action, _ := spec["action"].(string)
	if action == "pr" {
		runs, err := d.runsPullRequests(ctx)
		if err != nil {
			return nil, err
		}
		if !runs {
			return nil, webhook.ErrNotRun
		}
	}
	job, err := d.agent.client.Submit(ctx, r.Namespace, r.Name, spec, nil)
	if action == "pull" && apierrors.IsAlreadyExists(err) {
		d.pending.add(r.Namespace, r.Name)
	}
	return job, err
}

// runsPullRequests reports whether jobs for pull requests are run: by this agent, or
// by a server that has a webhook endpoint of its own and so creates them.
func (d *webhookStore) runsPullRequests(ctx context.Context) (bool, error) {
	a := d.agent
	if slices.Contains(a.actions, "pr") {
		return len(a.cfg.Jobs.Actions) == 0 || slices.Contains(a.cfg.Jobs.Actions, "pr"), nil
	}
	if a.embedded != nil {
		return false, nil
	}
	return a.client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/webhook")
}

// Seen implements webhook.Store.
func (d *webhookStore) Seen(ctx context.Context, r *webhook.Repository) error {
	if !d.agent.reconciles() {
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
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/repositories/%s/status", api.ProvisioningGroup, api.Repositories.Version, r.Namespace, r.Name)
	_, _, err = d.agent.client.Do(ctx, http.MethodPatch, path, nil, "application/json-patch+json", body)
	return err
}

var _ webhook.Store = (*webhookStore)(nil)
