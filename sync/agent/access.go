package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"limpet/state"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/identity"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/worker"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/drift"
)

// access is how an agent reaches Git hosts: where credentials and keys are, and who mints tokens.
type access struct {
	places     auth.Places
	reader     dependency.Reader
	hosts      *forge.Hosts
	minter     *forge.Minter        // mints tokens of Connections
	identities *identity.Identities // mints tokens of the identities of Repositories
	signers    *checkout.Signers
	mirrors    *git.Mirrors
	policies   *auth.List[auth.VerificationPolicy]
}

// openAccess opens the mirrors in a directory; references, which may be nil, learns what is read.
func openAccess(cfg Config, api *clients, references *dependency.Watcher, mirrors string) (_ *access, err error) {
	agent := "limpet/" + cfg.Version
	a := &access{reader: dependency.Reader{Client: api.client, Watcher: references, Sealed: api.sealed()}}
	a.policies = auth.NewList(cfg.Policies)
	a.places = auth.Places{Dir: cfg.CredentialsDir, Rules: auth.NewList(cfg.GitRules), Secrets: a.reader.Secret, Observer: references}
	if api.embedded != nil {
		a.places.Values = sealedValues{api.embedded}
	}
	a.hosts = forge.New(forge.Options{AllowInsecure: cfg.AllowInsecureGit, Guard: cfg.Guard, UserAgent: agent})
	o := identity.Options{
		Apps:          a.hosts,
		AllowInsecure: cfg.AllowInsecureGit,
		Guard:         cfg.Guard,
		UserAgent:     agent,
		Tokens:        cfg.TokenCache,
		Now:           api.client.Now,
	}
	a.identities = identity.New(o)
	a.minter = forge.NewMinter(a.hosts, a.places.Connection, auth.NewTokens(0))
	a.signers = checkout.NewSigners(a.places.Trust, a.policies, references.ObservePath)
	a.mirrors, err = git.Open(mirrors, git.Options{
		AllowLocal: cfg.LocalGit,
		AllowDirs:  cfg.LocalDirs,
		Whole:      cfg.GitTimeout,
		Guard:      cfg.Guard,
		Logger:     cfg.Logger.With("component", "git"),
	})
	if err != nil {
		a.hosts.Close()
		return nil, err
	}
	return a, nil
}

func (a *access) close() {
	a.mirrors.Close()
	a.hosts.Close()
}

func (a *access) credentials() auth.Source {
	p := a.places
	p.Connections = a.minter.Source(a.reader.Connection)
	return a.identities.Source(p.WithTransport(p.Credentials))
}

// countTokens returns the counts of minted tokens by provider.
func (a *access) countTokens() map[string]auth.TokenCounts {
	counts := a.identities.Counts()
	counts["connection"] = a.minter.Counts()
	return counts
}

func (a *access) tester(cfg Config, api *clients) *repos.Tester {
	t := &repos.Tester{Git: a.mirrors, Hosts: repos.Forges(a.hosts), Minter: a.minter, Signers: a.signers, Places: a.places,
		Insecure: cfg.AllowInsecureGit, Sinks: cfg.SinkPrefixes, Now: api.client.Now, Stored: api.stored, Look: a.look(cfg, api)}
	t.Credentials.Repositories = a.credentials()
	t.Credentials.Sources = a.identities.Source(a.places.WithTransport(a.places.NamedSecret()))
	return t
}

// sealedValues reads the secure values that the embedded API stores.
type sealedValues struct{ server *apiserver.Server }

func (v sealedValues) Value(ctx context.Context, l auth.Lookup, field string) ([]byte, error) {
	plural, name, inline := "repositories", l.Repository, l.Secure[field]
	if name == "" {
		plural, name, inline = "connections", l.Connection, ""
	}
	value, err := v.server.SecretOf(ctx, plural, l.Namespace, name, field, inline)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil // the search continues
	}
	return value, err
}

// Tester tests objects without a running Agent, with the same credentials and API.
type Tester struct {
	*repos.Tester
	clients clients
	access  *access
	pull    *worker.Pull
	dir     string // of the mirrors, to be removed; "" = they are kept
}

// OpenTester returns a Tester. It requires of cfg what an Agent does, except Store, which only the
// embedded API needs. Mirrors is the directory of the mirrors; "" is a new one, which Close
// removes.
func OpenTester(ctx context.Context, cfg Config, mirrors string) (_ *Tester, err error) {
	b := &Tester{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := b.clients.connect(ctx, cfg); err != nil {
		return nil, err
	}
	// The mirrors beside the state file may be those of another process.
	if mirrors == "" {
		if b.dir, err = os.MkdirTemp("", "limpet-test-"); err != nil {
			return nil, fmt.Errorf("make a directory for the test: %w", err)
		}
		mirrors = b.dir
	}
	if b.access, err = openAccess(cfg, &b.clients, nil, mirrors); err != nil {
		return nil, err
	}
	b.pull = worker.NewPull(pullOptions(cfg, &b.clients, b.access))
	b.Tester = b.access.tester(cfg, &b.clients)
	return b, nil
}

// Preview returns what a pull would do now.
func (b *Tester) Preview(ctx context.Context, q worker.PreviewQuery) (*worker.Preview, error) {
	return b.pull.Preview(ctx, q)
}

// Drift returns what differs between Git and the API, or a directory.
func (b *Tester) Drift(ctx context.Context, q worker.DriftQuery) (*drift.Report, error) {
	return b.pull.Drift(ctx, q)
}

// Client returns the client of the API. It is valid until Close.
func (b *Tester) Client() *kube.Client { return b.clients.client }

// Close closes the connections.
func (b *Tester) Close() error {
	b.clients.close()
	if b.access != nil {
		b.access.close()
	}
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}
