package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// Session connects one command to the API and to the state file: through the daemon's socket when a daemon
// holds the file, else by opening what it needs itself.
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
	Desk  bool
	Group string // of the API, when it may live on a server of its own
}

// Open connects the command to what it needs. Close releases it.
func (e *Env) Open(ctx context.Context, n Needs) (*Session, error) {
	path, err := e.StatePath()
	if err != nil {
		return nil, err
	}
	s, file := new(Session), n.Desk || n.API && e.Embedded()
	switch s.Daemon, err = Attach(ctx, path); {
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

// WithObject calls f with a session and the object of a name.
func (e *Env) WithObject(ctx context.Context, n Needs, kind Resource, name string,
	f func(*Session, *unstructured.Unstructured) error) error {
	return e.With(ctx, n, func(s *Session) error {
		u, err := e.FindObject(ctx, s, kind, name)
		if err != nil {
			return err
		}
		return f(s, u)
	})
}

// PrintObjects prints the objects of a kind that match a label selector and keep, at most limit of them, with the cells
// of their rows.
func (e *Env) PrintObjects(ctx context.Context, s *Session, kind Resource, selector string, keep func(*unstructured.Unstructured) bool,
	limit uint, t Table, row func(u *unstructured.Unstructured) ([]string, error)) error {
	items, err := s.List(ctx, kind, e.Flags.ListNamespace(), selector, keep, limit)
	if apierrors.IsNotFound(err) {
		return notServed(kind)
	}
	if err != nil {
		return err
	}
	objects := make([]any, len(items))
	for i := range items {
		u := &items[i]
		if failed, _, _ := unstructured.NestedBool(u.Object, "status", "conversion", "failed"); failed && e.Flags.Data() {
			if u, _, err = s.Client.Stored(ctx, kind, u); err != nil {
				return err
			}
		}
		cells, err := row(u)
		if err != nil {
			return err
		}
		t.Add(u.GetNamespace(), singular(kind)+"/"+u.GetName(), cells...)
		objects[i] = u.Object
	}
	return e.PrintList(objects, t)
}

// Connect returns a client of the server that the flags name, else of the embedded API. A daemon that uses the
// same server, or any when none is named, passes the calls on with its own credentials.
func (e *Env) Connect(ctx context.Context, s *Session, group string) (*kube.Client, error) {
	if s.Daemon != nil {
		same, err := e.Serves(ctx, s.Daemon)
		if err != nil {
			return nil, err
		}
		if same {
			return kube.Connect(ctx, kube.Config{Server: control.BaseURL, Transport: control.Transport(s.Daemon.Path()), Logger: e.Log,
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
	if server, own := map[string]string{api.DashboardGroup: e.Flags.DashboardsServerURL,
		api.FolderGroup: e.Flags.FoldersServerURL}[group]; own {
		cfg.Server = cmp.Or(server, cfg.Server)
		cfg.Audiences = []string{group, api.ProvisioningGroup}
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

// OpenStore is OpenReported for callers that need no report.
func (e *Env) OpenStore(ctx context.Context, path, socket string) (*state.Store, error) {
	store, _, err := e.OpenReported(ctx, path, socket)
	return store, err
}

// OpenReported opens the state file for this process alone, and returns what was done to it. Socket is where this process
// will listen, "" for none. With --read-only nothing is done to it.
func (e *Env) OpenReported(ctx context.Context, path, socket string) (*state.Store, state.Report, error) {
	store, report, err := state.Open(ctx, state.Options{Path: path, Version: Version, Socket: socket, Logger: e.Log,
		ReadOnly: e.Flags.ReadOnly})
	if e.Flags.ReadOnly && errors.Is(err, state.ErrCorrupt) {
		err = Errorf(ExitStore, "limpet store check    # without --read-only: it builds a new file from the sound records", "%w", err)
	}
	if err != nil {
		if _, known := StoreHint(err); !known && ctx.Err() == nil {
			err = Errorf(ExitStore, "give another --state FILE", "%w", err)
		}
		return nil, report, err
	}
	if report.Quarantined != "" {
		e.Log.Warn("state file was damaged; it was put aside and a new one built", "file", path, "damage", report.Damage, "kept_as",
			report.Quarantined, "records_carried", report.Carried, "records_lost", report.Lost, "next", e.Invocation.Complete(RebuiltNext))
	}
	if report.Migrated != "" {
		e.Log.Info("state file migrated to the present schema", "copy_of_the_old", report.Migrated)
	}
	return store, report, nil
}

// RebuiltNext is the next command after a damaged state file was rebuilt.
const RebuiltNext = "limpet repo list"

// RebuiltText describes how a damaged state file was rebuilt; "" means it was sound.
func RebuiltText(rep state.Report) string {
	if rep.Quarantined == "" {
		return ""
	}
	return fmt.Sprintf("it was damaged (%s) and is put aside as %s; carried over: %s, known to be lost: %d", rep.Damage,
		rep.Quarantined, text.Plural(rep.Carried, "record"), rep.Lost)
}

// StatePath returns the state file: the flag, else the place by the XDG and systemd conventions. Links are
// resolved, so that each process finds the same socket beside it.
func (e *Env) StatePath() (string, error) {
	path, err := filepath.Abs(e.Flags.State)
	if e.Flags.State == "" {
		path, _, err = e.UsualState()
	}
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "", Usagef("limpet --state "+text.ShellWord(filepath.Join(path, StateName)), "--state %s is a directory; it has to name a file",
			path)
	}
	return path, nil
}

// StateName is the name of the state file without --state.
const StateName = "limpet.db"

// UsualState returns the state file without --state, and the variable that its place comes from.
func (e *Env) UsualState() (path, from string, err error) {
	// The XDG convention ignores relative directories.
	for _, place := range []struct{ env, below string }{
		{"STATE_DIRECTORY", ""}, {"XDG_STATE_HOME", "limpet"}, {"HOME", ".local/state/limpet"},
	} {
		if dir := e.Getenv(place.env); filepath.IsAbs(dir) {
			return filepath.Join(dir, place.below, StateName), place.env, nil
		}
	}
	return "", "", Usagef("limpet --state /var/lib/limpet/limpet.db",
		"no place for the state file: none of STATE_DIRECTORY, XDG_STATE_HOME and HOME names a directory")
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

// Resource is a kind of objects.
type Resource = schema.GroupVersionResource

// pageSize is the number of objects in one request: few enough for a slow link.
const pageSize = 500

// List reads the objects that match a label selector and keep, page by page, at most limit of them; 0 means
// all. A nil keep matches all.
func (s *Session) List(ctx context.Context, gvr Resource, namespace, selector string, keep func(*unstructured.Unstructured) bool,
	limit uint) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	opts := metav1.ListOptions{Limit: pageSize, LabelSelector: selector}
	for {
		page, err := s.Client.Resource(gvr).Namespace(namespace).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			page.Items[i].SetManagedFields(nil)
			if keep == nil || keep(&page.Items[i]) {
				out = append(out, page.Items[i])
			}
			if limit > 0 && uint(len(out)) == limit {
				return out, nil
			}
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}

// Find reads the object of that name; without a namespace it searches all and rejects an ambiguous name.
// Objects come without managedFields, which are many times their size.
func (s *Session) Find(ctx context.Context, gvr Resource, namespace, name string) (u *unstructured.Unstructured, err error) {
	if namespace != "" {
		u, err = s.Client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	} else {
		var page *unstructured.UnstructuredList
		if page, err = s.Client.Resource(gvr).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}); err != nil {
			return nil, err
		}
		var in []string
		for i := range page.Items {
			u, in = &page.Items[i], append(in, page.Items[i].GetNamespace())
		}
		if slices.Sort(in); len(in) > 1 {
			return nil, &control.AmbiguousError{Noun: singular(gvr), Name: name, Namespaces: in}
		}
		if u == nil {
			err = apierrors.NewNotFound(gvr.GroupResource(), name)
		}
	}
	if err != nil {
		return nil, err
	}
	u.SetManagedFields(nil)
	return u, nil
}

// singular returns the singular of a kind.
func singular(of Resource) string {
	i := slices.IndexFunc(api.Kinds, func(k api.Kind) bool { return k.Group == of.Group && k.Plural == of.Resource })
	if i < 0 {
		return of.Resource
	}
	return api.Kinds[i].Singular
}

// listNouns are the commands that list the objects of a kind, by its plural; 'limpet get' lists the others.
var listNouns = map[string]string{"repositories": "repo", "connections": "connection", "jobs": "job", "gitrepositories": "source"}

// FindObject returns the object of a name in the namespace of the call. When there is none, the hint of the error lists
// those that there are.
func (e *Env) FindObject(ctx context.Context, s *Session, kind Resource, name string) (*unstructured.Unstructured, error) {
	u, err := s.Find(ctx, kind, e.Flags.ListNamespace(), name)
	if status := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &status) {
		if d := status.Status().Details; d == nil || d.Name == "" { // an API without the kind does not name the object
			return nil, notServed(kind)
		}
		next := "limpet get " + kind.Resource
		if noun := listNouns[kind.Resource]; noun != "" {
			next = "limpet " + noun + " list"
		}
		return nil, Errorf(ExitError, next, "%s %q not found", singular(kind), name)
	}
	return u, err
}

// notServed reports that the API has no objects of a kind.
func notServed(kind Resource) error {
	return Errorf(ExitError, "limpet doctor    # says which API is asked", "this API does not serve %s", kind.GroupResource())
}
