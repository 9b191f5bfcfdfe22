package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/apiserver"
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
	g.Go(func() error { store.RetryPulls(ctx); return nil })
	return g.Wait()
}

func (a *Agent) newWebhookStore() *webhook.Cluster {
	places := a.places()
	places.Observer = nil // each request reads them
	return webhook.NewCluster(webhook.ClusterOptions{
		Client: a.client, Repos: a.repos, Jobs: a.jobs, Own: a.cfg.Store, Given: places, Suspensions: a.suspensions,
		Embedded: a.embedded != nil, Reconciles: a.reconciles(), Logger: a.cfg.Logger,
		Pulled: func(k repos.Key) {
			a.activity.AddEvent(snapshot.Event{At: time.Now(), Level: "info", Repo: k.Name,
				Text: "webhook: pull queued for a push that came during the last one"})
		},
	})
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
