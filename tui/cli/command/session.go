package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/control"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
)

// Session connects one command to the API and to the state file: through the daemon's socket when a
// daemon holds the file, else by opening what it needs itself.
type Session struct {
	Client *kube.Client    // nil without Needs.API
	Store  control.Store   // nil when the command does not need the file
	Daemon *control.Client // nil when no daemon runs

	File     *state.Store
	Opening  state.Report      // of opening it
	Embedded *apiserver.Server // the embedded API in this process, without an agent
}

// Needs says what a command works with.
type Needs struct {
	API   bool
	Store bool
	Group string // of the API, when it may live on a server of its own
}

// Open connects the command to what it needs. Close releases it.
func (e *Env) Open(ctx context.Context, n Needs) (*Session, error) {
	s, file := new(Session), n.Store || n.API && e.Embedded()
	path, daemon, err := e.Attach(ctx)
	switch s.Daemon = daemon; {
	case err == nil:
		s.Store = s.Daemon
	case !errors.Is(err, control.ErrNoDaemon) || file && is[*UnresponsiveError](err):
		return nil, err
	case file:
		if s.File, s.Opening, err = e.OpenReported(ctx, path, ""); err != nil {
			return nil, err
		}
		s.Store = s.File
	}
	if err = nil; n.API {
		s.Client, err = e.Connect(ctx, s, n.Group)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// With calls f with a session, and closes it.
func (e *Env) With(ctx context.Context, n Needs, f func(*Session) error) error {
	s, err := e.Open(ctx, n)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

// Connect returns a client of the server that the flags name, else of the embedded API. A daemon
// that uses the same server, or any when none is named, passes the calls on with its own
// credentials.
func (e *Env) Connect(ctx context.Context, s *Session, group string) (*kube.Client, error) {
	if s.Daemon != nil {
		same, err := e.Serves(ctx, s.Daemon)
		if err != nil {
			return nil, err
		}
		if same {
			return kube.Connect(ctx, kube.Config{Server: control.BaseURL, Transport: s.Daemon.Transport(), Logger: e.Log,
				Timeout: e.callTimeout()})
		}
	} else if e.Embedded() {
		var err error
		o := apiserver.Options{Logger: e.Log, Version: Version, Finalizers: e.Flags.Controllers != "off",
			Actions: agent.ActionsOf(e.Flags.Actions)}
		if most := e.Flags.MaxRepositories; most != nil {
			o.MaxRepositories = *most
		}
		if s.Embedded, err = apiserver.New(s.File, o); err != nil {
			return nil, err
		}
		return kube.Connect(ctx, kube.Config{Server: agent.EmbeddedURL, Transport: s.Embedded.Transport(), Logger: e.Log})
	}
	cfg, err := e.apiConfig()
	if err != nil {
		return nil, err
	}
	switch group {
	case api.DashboardGroup:
		cfg.Server = cmp.Or(e.Flags.DashboardsServerURL, cfg.Server)
	case api.FolderGroup:
		cfg.Server = cmp.Or(e.Flags.FoldersServerURL, cfg.Server)
	}
	return kube.Connect(ctx, cfg)
}

// Serves reports whether a daemon works on the server that the flags mean.
func (e *Env) Serves(ctx context.Context, daemon *control.Client) (bool, error) {
	if e.Embedded() {
		return true, nil
	}
	cfg, err := e.apiConfig()
	if err != nil {
		return false, err
	}
	// Only a client knows the address of a kubeconfig.
	cfg.Logger = slog.New(slog.DiscardHandler)
	client, err := kube.Connect(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer client.Close()
	base, _ := client.Endpoint()
	return base.Redacted() == daemon.Hello().Server, nil
}

// Close releases the file and the connections.
func (s *Session) Close() {
	if s.Client != nil {
		s.Client.Close()
	}
	if s.Embedded != nil {
		s.Embedded.Close()
	}
	if s.File != nil {
		s.File.Close()
	}
	if s.Daemon != nil {
		s.Daemon.Close()
	}
}

// Snapshot returns what the agent of this host shows; nothing where none runs.
func (s *Session) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	if s.Daemon == nil {
		return new(snapshot.Snapshot), nil
	}
	return s.Daemon.Snapshot(ctx)
}

// NeedsAgent refuses to wait where no agent runs: the API is in this process.
func (e *Env) NeedsAgent(s *Session, what string) error {
	if s.Embedded == nil {
		return nil
	}
	path, _ := e.StatePath() // it was opened
	return Errorf(ExitError, "limpet --daemon    # in another terminal, then this command again",
		"no agent would %s: no agent holds %s", what, path)
}

// NoteAgent warns that no agent runs, so that what was written waits.
func (e *Env) NoteAgent(s *Session) {
	if s.Embedded != nil {
		e.Notef("no agent runs on this state file; start one with: %s", e.CommandFor("", "--daemon"))
	}
}

// Embedded reports whether no server is configured, so that limpet serves its own API.
func (e *Env) Embedded() bool {
	return e.Flags.ProvisioningServerURL == "" && e.Flags.Kubeconfig == ""
}

func (e *Env) apiConfig() (kube.Config, error) {
	g := e.Flags
	if g.Token != "" && g.TokenFile != "" {
		return kube.Config{}, Usagef("", "--token and --token-file are given both; keep one")
	}
	if g.ProvisioningServerURL != "" && g.Kubeconfig != "" {
		return kube.Config{}, Usagef("", "--provisioning-server-url and --kubeconfig are given both; keep one")
	}
	return kube.Config{
		Server: g.ProvisioningServerURL, Kubeconfig: g.Kubeconfig,
		Token: g.Token, TokenFile: g.TokenFile, TokenExchangeURL: g.TokenExchangeURL,
		TLS:       kube.TLS{Insecure: g.TLSInsecure, CertFile: g.TLSCertFile, KeyFile: g.TLSKeyFile, CAFile: g.TLSCAFile},
		UserAgent: "limpet/" + Version, Logger: e.Log, Timeout: e.callTimeout(),
	}, nil
}

// defaultNamespace is used where none is named.
const defaultNamespace = "default"

// OneNamespace returns the namespace in which a command creates objects.
func (g *Flags) OneNamespace() string { return cmp.Or(g.ListNamespace(), defaultNamespace) }

// ListNamespace returns the namespace to list; "" means all.
func (g *Flags) ListNamespace() string { return strings.TrimPrefix(g.Namespace, "*") }

// Hostname returns the name of this host, else one of this process.
func Hostname() string {
	name, _ := os.Hostname() // the kernel always has one, if an empty one
	return cmp.Or(name, fmt.Sprintf("pid-%d", os.Getpid()))
}

// Comparer opens the mirrors beside the state file, which store holds. The caller closes its
// Mirrors.
func (e *Env) Comparer(store *state.Store) (diff.Comparer, error) {
	path, err := e.StatePath()
	if err != nil {
		return diff.Comparer{}, err
	}
	kinds, err := e.Flags.Kinds()
	if err != nil {
		return diff.Comparer{}, err
	}
	mirrors, err := git.Open(agent.MirrorsPath(path), git.Options{
		AllowLocal: e.Flags.LocalGitPrefix, AllowDirs: e.Flags.LocalPrefix, Logger: e.Log,
	})
	return diff.Comparer{Mirrors: mirrors, Store: store, Kinds: kinds}, err
}
