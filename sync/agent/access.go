package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/identity"
	"limpet/sync/kube"
	"limpet/sync/worker"
)

// access is how an agent reaches Git hosts: where credentials and keys are, and who
// mints tokens.
type access struct {
	clients
	cfg        Config
	references *dependency.Watcher // observes what is read; nil = nothing wants to know
	hosts      *forge.Hosts
	minter     *forge.Minter        // mints tokens of Connections
	identities *identity.Identities // mints tokens of the identities of Repositories
	signers    *worker.Signers
	mirrors    *git.Mirrors
}

// open makes all but the clients, with the mirrors in a directory.
func (a *access) open(mirrors string) (err error) {
	agent := "limpet/" + a.cfg.Version
	a.hosts = forge.New(forge.Options{AllowInsecure: a.cfg.AllowInsecureGit, Guard: a.cfg.Guard, UserAgent: agent})
	o := identity.Options{
		Apps:          a.hosts,
		AllowInsecure: a.cfg.AllowInsecureGit,
		Guard:         a.cfg.Guard,
		UserAgent:     agent,
		Tokens:        a.cfg.TokenCache,
		Now:           a.serverTime,
	}
	if a.cfg.Store != nil { // a Tester has none
		o.Vault = vault{a.cfg.Store}
	}
	a.identities = identity.New(o)
	a.minter = forge.NewMinter(a.hosts, a.places().Connection, auth.NewTokens(0))
	a.signers = worker.NewSigners(a.places().Trust, a.cfg.Policies, a.references.ObservePath)
	a.mirrors, err = git.Open(mirrors, git.Options{
		AllowLocal: a.cfg.LocalGit,
		Whole:      a.cfg.GitTimeout,
		Guard:      a.cfg.Guard,
		Logger:     a.cfg.Logger.With("component", "git"),
	})
	return err
}

func (a *access) close() {
	a.clients.close()
	if a.mirrors != nil {
		a.mirrors.Close()
	}
	if a.hosts != nil {
		a.hosts.Close()
	}
}

// serverTime returns the time of the API, the local time while that is unknown.
func (a *access) serverTime() time.Time {
	if now, _, ok := a.client.Clock().Now(); ok {
		return now
	}
	return time.Now()
}

// places returns where credentials and keys are looked up.
func (a *access) places() auth.Places {
	p := placesOf(a.client, a.cfg.CredentialsDir, a.cfg.GitRules)
	p.Secrets, p.Observer = a.secrets(), a.references
	if a.embedded != nil {
		p.Values = sealedValues{a.embedded}
	}
	return p
}

func (a *access) secrets() clusterSecrets {
	return clusterSecrets{a.client, a.references, a.embedded != nil}
}

// credentials returns the look-up of credentials for Repositories.
func (a *access) credentials() auth.Source {
	p := a.places()
	p.Connections = a.minter.Source(a.Connection)
	return a.identities.Source(p.WithTransport(p))
}

// sourceCredentials returns the look-up of credentials for GitRepositories.
func (a *access) sourceCredentials() auth.Source {
	p := a.places()
	return a.identities.Source(p.WithTransport(p.NamedSecret()))
}

// Connection implements repos.ConnectionReader. The observed version changes with the
// spec and with the health.
func (a *access) Connection(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := a.client.Resource(api.Connections).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	version := ""
	switch {
	case kube.NotServed(err):
		u = nil
	case err != nil:
		return nil, kube.AsUnavailable(err)
	default:
		healthy, _, _ := unstructured.NestedBool(u.Object, "status", "health", "healthy")
		version = fmt.Sprint(u.GetUID(), " ", u.GetGeneration(), " ", healthy)
	}
	a.references.Observe(dependency.Ref{Kind: dependency.Connection, Namespace: namespace, Name: name}, version)
	return u, nil
}

// countTokens returns the counts of minted tokens by provider.
func (a *access) countTokens() map[string]auth.TokenCounts {
	counts := a.identities.Counts()
	counts["connection"] = a.minter.Counts()
	return counts
}

// vault stores sealed secrets of identities in the state file.
type vault struct{ *state.Store }

// Secret returns nil for an unknown name.
func (v vault) Secret(ctx context.Context, name string) ([]byte, error) {
	return orNone(v.Store.Secret(ctx, name))
}

// orNone turns ErrNotFound into nil, so that the search continues.
func orNone(value []byte, err error) ([]byte, error) {
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// clusterSecrets reads core Secrets. A server without Secrets, or one that forbids to
// read them, counts as one without this Secret.
type clusterSecrets struct {
	client     *kube.Client
	references *dependency.Watcher
	embedded   bool
}

// Secret implements auth.Secrets.
func (s clusterSecrets) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	if s.embedded && apiserver.IsSealed(name) {
		return nil, nil // it is one of the secure values
	}
	u, err := s.client.Resource(api.Secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	s.references.ObserveSecret(namespace, name, u, err)
	switch {
	case kube.NotServed(err):
		return nil, nil
	case err != nil:
		return nil, kube.AsUnavailable(err)
	}
	members, _ := u.Object["data"].(map[string]any)
	data := make(map[string][]byte, len(members))
	for key, value := range members {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("read secret %s/%s: key %s is not a string", namespace, name, key)
		}
		if data[key], err = base64.StdEncoding.DecodeString(text); err != nil {
			// The error of the decoder would reveal a position in the secret.
			return nil, fmt.Errorf("read secret %s/%s: key %s is not base64", namespace, name, key)
		}
	}
	return data, nil
}

// sealedValues reads the secure values that the embedded API stores.
type sealedValues struct{ server *apiserver.Server }

// Value implements auth.Values.
func (v sealedValues) Value(ctx context.Context, l auth.Lookup, field string) ([]byte, error) {
	if l.Repository == "" {
		return orNone(v.server.SecretOf(ctx, "connections", l.Namespace, l.Connection, field, ""))
	}
	return orNone(v.server.SecretOf(ctx, "repositories", l.Namespace, l.Repository, field, l.Secure[field]))
}

// placesOf returns the places of an agent for another program, with the rights of
// that program to Secrets and files. Only the agent can read the values that the
// embedded API stores.
func placesOf(client *kube.Client, dir string, rules []auth.Rule) auth.Places {
	p := auth.Places{Dir: dir, Rules: rules}
	if client != nil {
		p.Secrets = clusterSecrets{client: client}
	}
	return p
}

// SignersAt returns the signers of an agent for another program.
func SignersAt(client *kube.Client, dir string, rules []auth.Rule, policies []auth.VerificationPolicy) *worker.Signers {
	return worker.NewSigners(placesOf(client, dir, rules).Trust, policies, nil)
}

// SigningAt returns the signing keys of an agent for another program.
func SigningAt(client *kube.Client, dir string, rules []auth.Rule) *worker.SigningKeys {
	return worker.NewSigningKeys(placesOf(client, dir, rules).Signing)
}
