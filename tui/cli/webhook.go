package cli

import (
	"crypto/tls"
	"net/netip"

	"limpet/sync/agent"
)

// webhooks reads the flags of the webhook listener. An address that cannot be
// had is no error here: the network may come later.
func (r *run) webhooks() (agent.Webhooks, error) {
	g := r.g
	w := agent.Webhooks{Listen: g.WebhookListen, URL: g.WebhookURL, CertFile: g.WebhookCertFile, KeyFile: g.WebhookKeyFile}
	if w.Listen == "" && w.URL == "" {
		return w, nil
	}
	const next = "limpet --daemon --webhook-listen 127.0.0.1:9441"
	if err := listenAddress(w.Listen); err != nil {
		return w, usage(next, "--webhook-listen: %w", err)
	}
	for _, text := range g.WebhookTrustedProxy {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return w, usage(next+" --webhook-trusted-proxy 127.0.0.1", "--webhook-trusted-proxy %q is neither an address nor a network", text)
		}
		w.Trusted = append(w.Trusted, prefix.Masked())
	}
	if (w.CertFile == "") != (w.KeyFile == "") {
		return w, usage(next+" --webhook-cert-file FILE --webhook-key-file FILE", "--webhook-cert-file and --webhook-key-file go together: one of them is missing")
	}
	if w.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(w.CertFile, w.KeyFile); err != nil {
			return w, usage("", "--webhook-cert-file %s, --webhook-key-file %s: %w", w.CertFile, w.KeyFile, err)
		}
	}
	return w, nil
}
