package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/localapi"
	"limpet/sync/socket"
)

// session is one command's way to the API and to the state file. Where a
// daemon holds the file it goes over the daemon's socket; else the command
// opens what it needs itself.
type session struct {
	Client *api.Client    // nil until needAPI
	Desk   socket.Desk    // nil until needDesk
	Daemon *socket.Client // nil when no daemon runs

	store  *state.Store
	server *localapi.Server
}

// need says what a command works with.
type need struct {
	API   bool
	Desk  bool
	Group string // of the API, when it may live on a server of its own
}

// open connects the command to what it needs. Close releases it.
func (r *run) open(ctx context.Context, n need) (*session, error) {
	s := new(session)
	path, err := r.statePath()
	if err != nil {
		return nil, err
	}
	if s.Daemon, err = socket.Attach(ctx, socketPath(path)); err != nil && !errors.Is(err, socket.ErrNoDaemon) {
		return nil, err
	}
	if s.Daemon != nil {
		s.Desk = s.Daemon
		if n.API {
			s.Client, err = api.Connect(ctx, api.Config{Server: socket.BaseURL, Transport: socket.Transport(s.Daemon.Path()), Logger: r.log, Timeout: r.callTimeout()})
		}
		return s, s.orClose(err)
	}
	if n.Desk || n.API && r.embedded() {
		s.store, err = r.openStore(ctx, path)
		if err != nil {
			return nil, err
		}
		s.Desk = s.store
	}
	if n.API && r.embedded() {
		if s.server, err = localapi.New(s.store, localapi.Options{Logger: r.log, Version: Version}); err == nil {
			s.Client, err = api.Connect(ctx, api.Config{Server: embeddedURL, Transport: s.server.Transport(), Logger: r.log})
		}
	} else if n.API {
		var cfg api.Config
		if cfg, err = r.apiConfig(); err == nil {
			r.forGroup(&cfg, n.Group)
			s.Client, err = api.Connect(ctx, cfg)
		}
	}
	return s, s.orClose(err)
}

// forGroup points the configuration at the server of an API group and asks for
// a token that this server takes.
func (r *run) forGroup(cfg *api.Config, group string) {
	server := ""
	switch group {
	case api.DashboardGroup:
		server = r.g.DashboardsServerURL
	case api.FolderGroup:
		server = r.g.FoldersServerURL
	default:
		return
	}
	if server != "" {
		cfg.Server = server
	}
	cfg.Audiences = []string{group, api.ProvisioningGroup}
}

// embeddedURL is the server name of requests to the embedded API in process.
const embeddedURL = "http://embedded"

func (s *session) orClose(err error) error {
	if err != nil {
		s.Close()
	}
	return err
}

// Close releases the file and the connections.
func (s *session) Close() {
	if s.Client != nil {
		s.Client.Close()
	}
	if s.server != nil {
		s.server.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
	if s.Daemon != nil {
		s.Daemon.Close()
	}
}

// openStore opens the state file for this command alone.
func (r *run) openStore(ctx context.Context, path string) (*state.Store, error) {
	store, report, err := state.Open(ctx, state.Options{Path: path, Version: Version, Socket: socketPath(path), Logger: r.log})
	if err != nil {
		return nil, err
	}
	noteReport(r.log, path, report)
	return store, nil
}

// noteReport tells what opening the file had to do.
func noteReport(log *slog.Logger, path string, rep state.Report) {
	if rep.Quarantined != "" {
		log.Warn("state file was damaged; it was put aside and a new one built", "file", path, "kept_as", rep.Quarantined, "records_carried", rep.Carried, "records_lost", rep.Lost)
	}
	if rep.Migrated != "" {
		log.Info("state file migrated to the present schema", "copy_of_the_old", rep.Migrated)
	}
}

// statePath finds the state file: the flag, else the places of the XDG and
// systemd conventions.
func (r *run) statePath() (string, error) {
	name := "limpet.db"
	if r.g.State != "" {
		return filepath.Abs(r.g.State)
	}
	if dir := r.world.Env("STATE_DIRECTORY"); dir != "" {
		return filepath.Join(dir, name), nil
	}
	if dir := r.world.Env("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "limpet", name), nil
	}
	if home := r.world.Env("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "limpet", name), nil
	}
	return "", usage("limpet --state /var/lib/limpet/limpet.db", "no place for the state file: HOME, XDG_STATE_HOME and STATE_DIRECTORY are all empty")
}

// socketPath is the socket beside the state file.
func socketPath(statePath string) string {
	return filepath.Join(filepath.Dir(statePath), "limpet.sock")
}

// embedded says that no server is configured, so limpet serves its own API.
func (r *run) embedded() bool {
	return r.g.ProvisioningServerURL == "" && r.g.Kubeconfig == ""
}

// apiConfig is the connection to the configured server.
func (r *run) apiConfig() (api.Config, error) {
	g := r.g
	if g.Token != "" && g.TokenFile != "" {
		return api.Config{}, usage("", "--token and --token-file are given both; keep one")
	}
	if g.ProvisioningServerURL != "" && g.Kubeconfig != "" {
		return api.Config{}, usage("", "--provisioning-server-url and --kubeconfig are given both; keep one")
	}
	return api.Config{
		Server: g.ProvisioningServerURL, Kubeconfig: g.Kubeconfig,
		Token: g.Token, TokenFile: g.TokenFile, TokenExchangeURL: g.TokenExchangeURL,
		TLS:       api.TLS{Insecure: g.TLSInsecure, CertFile: g.TLSCertFile, KeyFile: g.TLSKeyFile, CAFile: g.TLSCAFile},
		UserAgent: "limpet/" + Version, Logger: r.log, Timeout: r.callTimeout(),
	}, nil
}

// namespace is where a command creates what it was given no namespace for.
func (g *Globals) oneNamespace() string {
	if g.Namespace == "" || g.Namespace == "*" {
		return "default"
	}
	return g.Namespace
}

// listNamespace is the namespace to list; "" is all of them.
func (g *Globals) listNamespace() string {
	if g.Namespace == "*" {
		return ""
	}
	return g.Namespace
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return fmt.Sprintf("pid-%d", os.Getpid())
	}
	return name
}
