package webhook

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/apiserver"
)

// Config is where webhooks are received. Without a certificate it needs a TLS proxy in front.
type Config struct {
	Listen            string // address; "" = nowhere
	URL               string // https address at which hosts reach it, for those that are asked for webhooks; "" = not known
	CertFile, KeyFile string
	Trusted           []netip.Prefix // proxies whose X-Forwarded-For counts
}

// Check returns what is wrong with the configuration.
func (c Config) Check() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("a certificate and its key go together: one of --webhook-cert-file and --webhook-key-file is missing")
	}
	if c.URL == "" {
		return nil
	}
	if c.Listen == "" {
		return errors.New("--webhook-url is where hosts reach --webhook-listen, which is missing")
	}
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("--webhook-url must be an address that begins with https:// and has no user and no query")
	}
	return nil
}

// listenRetry is the delay after a failed listen: an agent may start before the network of its host.
const listenRetry = 15 * time.Second

// Run receives webhooks until ctx ends. Repositories are pulled at their interval anyway,
// so an address in use is logged and retried.
func Run(ctx context.Context, c Config, cluster *Cluster, o Options) error {
	o.Store, o.Trusted = cluster, c.Trusted
	receiver, err := New(ctx, o)
	if err != nil {
		return err
	}
	ln, err := c.listen()
	if err != nil {
		o.Logger.Warn("no webhooks", "address", c.Listen, "err", err, "next", "--webhook-listen with another address", "again_in", listenRetry)
	}
	for ; err != nil; ln, err = c.listen() {
		select {
		case <-time.After(listenRetry):
		case <-ctx.Done():
			return nil
		}
	}
	o.Logger.Info("webhooks", "address", ln.Addr().String(), "tls", c.CertFile != "", "path", Pattern)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return receiver.Serve(ctx, ln) })
	g.Go(func() error { cluster.RetryPulls(ctx); return nil })
	return g.Wait()
}

func (c Config) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	gated := Gate(ln, c.Trusted)
	if c.CertFile == "" {
		return gated, nil
	}
	secure, err := apiserver.ListenTLS(gated, c.CertFile, c.KeyFile, "http/1.1")
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return secure, nil
}
