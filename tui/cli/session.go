package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// session is one command's way to the API and to the state file. Where a
// daemon holds the file it goes over the daemon's socket; else the command
// opens what it needs itself.
type session struct {
	Client *kube.Client    // nil without need.API
	Desk   control.Desk    // nil when the command has no use for the file
	Daemon *control.Client // nil when no daemon runs

	store  *state.Store
	report state.Report      // of opening it
	server *apiserver.Server // the embedded API in this process: no agent runs on it
}

// need says what a command works with.
type need struct {
	API   bool
	Desk  bool
	Group string // of the API, when it may live on a server of its own
}

// open connects the command to what it needs. Close releases it.
func (r *run) open(ctx context.Context, n need) (*session, error) {
	path, err := r.statePath()
	if err != nil {
		return nil, err
	}
	s := new(session)
	file := n.Desk || n.API && r.embedded()
	if s.Daemon, err = hail(ctx, path); err != nil && (!errors.Is(err, control.ErrNoDaemon) || file && errors.As(err, new(*silentError))) {
		return nil, err
	}
	if s.Daemon != nil {
		s.Desk = s.Daemon
	} else if file {
		if s.store, s.report, err = r.openReported(ctx, path, ""); err != nil {
			return nil, err
		}
		s.Desk = s.store
	}
	if n.API {
		s.Client, err = r.connect(ctx, s, n.Group)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// connect makes the client of a session: of the server that the flags name,
// else of the embedded API. A daemon that works on that server, or on any when
// none is named, passes the calls on with its own credentials.
func (r *run) connect(ctx context.Context, s *session, group string) (*kube.Client, error) {
	if s.Daemon != nil {
		same, err := r.serves(ctx, s.Daemon)
		if err != nil {
			return nil, err
		}
		if same {
			return kube.Connect(ctx, kube.Config{Server: control.BaseURL, Transport: control.Transport(s.Daemon.Path()), Logger: r.log, Timeout: r.callTimeout()})
		}
	} else if r.embedded() {
		var err error
		o := apiserver.Options{Logger: r.log, Version: Version, Finalizers: r.g.Controllers != "off"}
		if most := r.g.MaxRepositories; most != nil {
			o.MaxRepositories = *most
		}
		if s.server, err = apiserver.New(s.store, o); err != nil {
			return nil, err
		}
		return kube.Connect(ctx, kube.Config{Server: agent.EmbeddedURL, Transport: s.server.Transport(), Logger: r.log})
	}
	cfg, err := r.apiConfig()
	if err != nil {
		return nil, err
	}
	r.forGroup(&cfg, group)
	return kube.Connect(ctx, cfg)
}

// serves says whether a daemon works on what the flags mean.
func (r *run) serves(ctx context.Context, daemon *control.Client) (bool, error) {
	if r.embedded() {
		return true, nil
	}
	cfg, err := r.apiConfig()
	if err != nil {
		return false, err
	}
	// The address of a kubeconfig is known to a client only.
	cfg.Logger = slog.New(slog.DiscardHandler)
	client, err := kube.Connect(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer client.Close()
	base, _ := client.Endpoint()
	return base.Redacted() == daemon.Hello().Server, nil
}

// forGroup points the configuration at the server of an API group and asks for
// a token that this server takes.
func (r *run) forGroup(cfg *kube.Config, group string) {
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

// openStore opens the state file for this process alone. Socket is where it
// will answer others, "" when it will not.
func (r *run) openStore(ctx context.Context, path, socket string) (*state.Store, error) {
	store, _, err := r.openReported(ctx, path, socket)
	return store, err
}

// openReported is openStore for who tells what was done to the file.
func (r *run) openReported(ctx context.Context, path, socket string) (*state.Store, state.Report, error) {
	store, report, err := state.Open(ctx, state.Options{Path: path, Version: Version, Socket: socket, Logger: r.log})
	if err != nil {
		if _, known := storeHint(err); !known && ctx.Err() == nil {
			err = fail(ExitStore, "give another --state FILE", "%w", err)
		}
		return nil, report, err
	}
	noteReport(r.log, path, report)
	return store, report, nil
}

// noteReport tells what opening the file had to do.
func noteReport(log *slog.Logger, path string, rep state.Report) {
	if rep.Quarantined != "" {
		log.Warn("state file was damaged; it was put aside and a new one built", "file", path, "damage", rep.Damage, "kept_as", rep.Quarantined, "records_carried", rep.Carried, "records_lost", rep.Lost, "next", rebuiltNext)
	}
	if rep.Migrated != "" {
		log.Info("state file migrated to the present schema", "copy_of_the_old", rep.Migrated)
	}
}

// rebuiltNext is the next command after a state file was damaged and rebuilt.
const rebuiltNext = "limpet repo list"

// rebuiltText tells what was done to a damaged state file; "" = it was sound.
func rebuiltText(rep state.Report) string {
	if rep.Quarantined == "" {
		return ""
	}
	lost := "lost: none"
	if rep.Lost > 0 {
		lost = fmt.Sprintf("lost: %d or more", rep.Lost)
	}
	return fmt.Sprintf("it was damaged (%s) and is put aside as %s; carried over: %s, %s", rep.Damage, rep.Quarantined, text.Plural(rep.Carried, "record"), lost)
}

// statePath finds the state file: the flag, else the places of the XDG and
// systemd conventions. A link is followed, so that everybody who means one file
// finds the same socket beside it.
func (r *run) statePath() (string, error) {
	path, err := r.namedState()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "", usage("limpet --state "+shellWord(filepath.Join(path, stateName)), "--state %s is a directory; it has to name a file", path)
	}
	return path, nil
}

// stateName is the name of the state file where --state does not say.
const stateName = "limpet.db"

func (r *run) namedState() (string, error) {
	if r.g.State != "" {
		return filepath.Abs(r.g.State)
	}
	path, _, err := r.usualState()
	return path, err
}

// usualState is the state file where --state does not say, and the variable that
// its place comes from.
func (r *run) usualState() (path, from string, err error) {
	// A relative directory would depend on where the command is called; the
	// XDG convention says that such a one does not count.
	for _, place := range []struct{ env, below string }{
		{"STATE_DIRECTORY", ""}, {"XDG_STATE_HOME", "limpet"}, {"HOME", ".local/state/limpet"},
	} {
		if dir := r.Getenv(place.env); filepath.IsAbs(dir) {
			return filepath.Join(dir, place.below, stateName), place.env, nil
		}
	}
	return "", "", usage("limpet --state /var/lib/limpet/limpet.db", "no place for the state file: none of STATE_DIRECTORY, XDG_STATE_HOME and HOME names a directory")
}

// embedded says that no server is configured, so limpet serves its own API.
func (r *run) embedded() bool {
	return r.g.ProvisioningServerURL == "" && r.g.Kubeconfig == ""
}

// apiConfig is the connection to the configured server.
func (r *run) apiConfig() (kube.Config, error) {
	g := r.g
	if g.Token != "" && g.TokenFile != "" {
		return kube.Config{}, usage("", "--token and --token-file are given both; keep one")
	}
	if g.ProvisioningServerURL != "" && g.Kubeconfig != "" {
		return kube.Config{}, usage("", "--provisioning-server-url and --kubeconfig are given both; keep one")
	}
	return kube.Config{
		Server: g.ProvisioningServerURL, Kubeconfig: g.Kubeconfig,
		Token: g.Token, TokenFile: g.TokenFile, TokenExchangeURL: g.TokenExchangeURL,
		TLS:       kube.TLS{Insecure: g.TLSInsecure, CertFile: g.TLSCertFile, KeyFile: g.TLSKeyFile, CAFile: g.TLSCAFile},
		UserAgent: "limpet/" + Version, Logger: r.log, Timeout: r.callTimeout(),
	}, nil
}

// defaultNamespace is the one that is meant where none is named.
const defaultNamespace = "default"

// oneNamespace is where a command creates what it was given no namespace for.
func (g *Globals) oneNamespace() string {
	if g.Namespace == "" || g.Namespace == "*" {
		return defaultNamespace
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

func (r *run) stateText() string {
	path, err := r.statePath()
	if err != nil {
		return "the state file"
	}
	return fmt.Sprintf("the state file %s", path)
}
