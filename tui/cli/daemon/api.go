package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/apiserver"
	"limpet/sync/apiserver/manifests"
	"limpet/sync/apiserver/token"
	"limpet/sync/fileid"
	"limpet/sync/kube"
	"limpet/sync/text"
	"limpet/sync/webhook"
	"limpet/tui/cli/command"
)

// defaultAPIToken is the token of the walk-through in Grafana's controller README. It is accepted
// on loopback only, where it protects from no other user anyway.
const defaultAPIToken = "ProvisioningAdminToken"

// APICommand is 'limpet api'.
type APICommand struct {
	Listen     string `help:"Address of the API, over TLS." default:"127.0.0.1:6446"`
	SignListen string `name:"sign-listen" help:"Address of the token-exchange endpoint, plain HTTP." default:"127.0.0.1:6481"`
	SignTLS    bool   `name:"sign-tls" help:"TLS for --sign-listen too, with the certificate of the API. Required off loopback."`
}

func (c APICommand) Run(ctx context.Context, e *command.Env) error {
	secret, from, shown, err := c.token(e)
	if err != nil {
		return err
	}
	if reachable(c.SignListen) && !c.SignTLS {
		return command.Usagef("limpet api --sign-listen "+text.ShellWord(c.SignListen)+" --sign-tls",
			"--sign-listen %s can be reached from other hosts, and tokens would travel without TLS", c.SignListen)
	}
	if (e.Flags.TLSCertFile == "") != (e.Flags.TLSKeyFile == "") {
		return command.Usagef("", "--tls-cert-file and --tls-key-file need each other")
	}
	path, err := e.StatePath()
	if err != nil {
		return err
	}
	of := ""
	if e.Flags.State == "" { // so that a daemon on this host keeps the default one
		of = ": objects of its own; for those of the agent stop it, then: limpet api --state " + text.ShellWord(path)
		path = filepath.Join(filepath.Dir(path), "limpet-api.db")
	}
	return reopening(ctx, e, func() error {
		store, err := e.OpenStore(ctx, path, "")
		if err != nil {
			return err
		}
		defer store.Close()
		e.Notef("state file %s%s", path, of)
		return c.serve(ctx, e, store, filepath.Dir(path), secret, from, shown)
	})
}

func (c APICommand) serve(ctx context.Context, e *command.Env, store *state.Store, dir, secret, from, shown string) error {
	signer, err := token.NewSigner(dir)
	if err != nil {
		return err
	}
	server, err := apiserver.New(store, apiserver.Options{
		Logger:        e.Log,
		Version:       command.Version,
		Auth:          apiserver.NewGate(signer, secret),
		SealedSecrets: true,
	})
	if err != nil {
		return err
	}
	defer server.Close()
	certFile, keyFile := e.Flags.TLSCertFile, e.Flags.TLSKeyFile
	if certFile == "" {
		if certFile, keyFile, err = apiserver.SelfSigned(dir, hostOf(c.Listen), hostOf(c.SignListen)); err != nil {
			return err
		}
	}
	exchange, err := token.NewExchange(signer, secret, e.Log)
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	if e.Flags.Manifests != "" {
		client, err := kube.Connect(ctx, kube.Config{Server: agent.EmbeddedURL, Transport: server.Transport(), Logger: e.Log})
		if err != nil {
			return err
		}
		defer client.Close()
		o, err := e.Manifests()
		if err != nil {
			return err
		}
		o.Client, o.Store = client, store
		o.Logger = e.Log
		applier, err := manifests.New(ctx, o)
		if err != nil {
			return command.Usagef("", "--manifests: %w", err)
		}
		parts = append(parts, applier.Run)
	}
	// Both addresses are taken before either answers, so that clients never see one without the other.
	apiLn, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return command.Errorf(command.ExitError, "limpet api --listen 127.0.0.1:0", "listen for the API: %w", err)
	}
	defer apiLn.Close()
	signLn, err := net.Listen("tcp", c.SignListen)
	if err != nil {
		return command.Errorf(command.ExitError, "limpet api --sign-listen 127.0.0.1:0", "listen for the token exchange: %w", err)
	}
	defer signLn.Close()
	secure, err := apiserver.ListenTLS(apiLn, certFile, keyFile)
	if err != nil {
		return command.Usagef("", "--tls-cert-file %s, --tls-key-file %s: %w", certFile, keyFile, err)
	}
	sign, scheme, ca := signLn, "http://", ""
	if c.SignTLS {
		if sign, err = apiserver.ListenTLS(signLn, certFile, keyFile, "http/1.1"); err != nil {
			return command.Usagef("", "--tls-cert-file %s, --tls-key-file %s: %w", certFile, keyFile, err)
		}
		scheme, ca = "https://", "--cacert "+text.ShellWord(certFile)+" "
	}
	e.Notef("API on https://%s, token exchange on %s%s%s, certificate %s", apiLn.Addr(), scheme, signLn.Addr(), token.ExchangePath, certFile)
	e.Notef("token: %s; get an access token for 10 minutes with:", from)
	e.Notef("  curl -s %s-H \"Authorization: Bearer %s\" -d '%s' %s%s%s", ca, shown,
		`{"namespace":"*","audiences":["provisioning.grafana.app"]}`, scheme, local(signLn.Addr()), token.ExchangePath)
	e.Notef("send it with each request as a header: X-Access-Token: Bearer ACCESS_TOKEN")
	parts = append(parts,
		func(ctx context.Context) error {
			return apiserver.ServeExchange(ctx, webhook.Gate(sign, nil), exchange)
		},
		func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-store.Damaged():
				return state.ErrCorrupt
			}
		},
		func(ctx context.Context) error {
			defer context.AfterFunc(ctx, func() { _ = server.Close() })() // ends the watches
			return apiserver.Serve(ctx, secure, &http.Server{Handler: server})
		})
	return RunTogether(ctx, parts...)
}

// token returns the token that may be exchanged, where it is, and what a shell between double
// quotes makes it of. The default is refused on addresses that other hosts can reach.
func (c APICommand) token(e *command.Env) (secret, from, shown string, err error) {
	secret, from, shown = e.Flags.Token, "that of --token", "$LIMPET_TOKEN"
	if e.Flags.TokenFile != "" {
		data, err := fileid.Read(e.Flags.TokenFile, fileid.MaxSettings)
		if err != nil {
			return "", "", "", command.Usagef("", "--token-file: %w", err)
		}
		secret, from, shown = strings.TrimSpace(string(data)), "in "+e.Flags.TokenFile, "$(cat "+text.ShellWord(e.Flags.TokenFile)+")"
	}
	if secret != "" {
		return secret, from, shown, nil
	}
	for flag, addr := range map[string]string{"--listen": c.Listen, "--sign-listen": c.SignListen} {
		if reachable(addr) {
			return "", "", "", command.Usagef("limpet api --token-file FILE", "%s %s can be reached from other hosts: give a token of your own",
				flag, addr)
		}
	}
	return defaultAPIToken, defaultAPIToken + " (the default, on loopback only: with it every user of this host reads the stored credentials; --token sets another)", defaultAPIToken, nil
}

// local returns an address by which this host reaches a listener.
func local(addr net.Addr) string {
	if tcp := addr.(*net.TCPAddr); tcp.IP.IsUnspecified() {
		return fmt.Sprintf("localhost:%d", tcp.Port)
	}
	return addr.String()
}

// reachable reports whether other hosts can reach an address to listen on.
func reachable(addr string) bool {
	ip := net.ParseIP(hostOf(addr))
	return hostOf(addr) != "localhost" && (ip == nil || !ip.IsLoopback())
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
