package agent

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/identity"
	"limpet/sync/kube"
)

// remotes are the clients of Git hosts and of identity providers.
type remotes struct {
	hosts      *forge.Hosts
	minter     *forge.Minter        // mints tokens of Connections
	identities *identity.Identities // mints tokens of the identities of Repositories
}

// newRemotes returns them. It reads the secrets of Connections from the same places
// as those of Repositories.
func (a *Agent) newRemotes() remotes {
	hosts := forge.New(forge.Options{AllowInsecure: a.cfg.AllowInsecureGit, Guard: a.cfg.Guard, UserAgent: "limpet/" + a.cfg.Version})
	o := identity.Options{Apps: hosts, AllowInsecure: a.cfg.AllowInsecureGit, Guard: a.cfg.Guard, UserAgent: "limpet/" + a.cfg.Version, Tokens: a.cfg.TokenCache}
	if a.client != nil {
		o.Now = a.serverTime
	}
	if a.cfg.Store != nil { // a Tester has none
		o.Vault = vault{a.cfg.Store}
	}
	return remotes{hosts, forge.NewMinter(hosts, a.places().Connection, auth.NewTokens(0)), identity.New(o)}
}

// serverTime returns the time of the API, the local time while that is unknown.
func (a *Agent) serverTime() time.Time {
	if now, _, ok := a.client.Clock().Now(); ok {
		return now
	}
	return time.Now()
}

// orNone turns ErrNotFound into nil, so that the search continues.
func orNone(value []byte, err error) ([]byte, error) {
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// connection reads a Connection, nil when it does not exist or may not be read.
func (a *Agent) connection(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := a.client.Resource(api.Connections).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		a.observeConnection(namespace, name, nil)
		return nil, nil
	}
	if err != nil {
		return nil, kube.AsUnavailable(err)
	}
	a.observeConnection(namespace, name, u)
	return u, nil
}

// connectionReader reads Connections for the controller of Repositories.
type connectionReader struct{ a *Agent }

// Connection implements repos.ConnectionReader.
func (r connectionReader) Connection(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	return r.a.connection(ctx, namespace, name)
}

// vault stores sealed secrets of identities in the state file.
type vault struct{ *state.Store }

// Secret returns nil for an unknown name.
func (v vault) Secret(ctx context.Context, name string) ([]byte, error) {
	return orNone(v.Store.Secret(ctx, name))
}

// countTokens returns the counts of minted tokens by provider.
func (a *Agent) countTokens() map[string]auth.TokenCounts {
	counts := a.identities.Counts()
	counts["connection"] = a.minter.Counts()
	return counts
}
