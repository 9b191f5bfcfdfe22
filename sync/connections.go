package sync

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
)

// connections is how the Connections of Repositories are used: who speaks with
// their hosts, and who mints tokens of them. Their secrets are looked up where
// those of Repositories are.
func (a *Agent) connections() (*forge.Hosts, *forge.Minter) {
	sources := []auth.ConnectionSource{auth.ConnectionSecrets(a.secret)}
	if a.embedded != nil {
		sources = append(sources, auth.ConnectionFields(a.sealed))
	}
	if a.cfg.CredentialsDir != "" {
		sources = append(sources, auth.ConnectionDir(a.cfg.CredentialsDir))
	}
	hosts := forge.New(forge.Options{AllowInsecure: a.cfg.AllowInsecureGit, UserAgent: "limpet/" + a.cfg.Version})
	return hosts, forge.NewMinter(hosts, auth.ChainConnections(sources...), auth.NewTokens(0))
}

// sealed reads a value of a Connection that the embedded API keeps. A name that
// leads to a Secret is none of its values.
func (a *Agent) sealed(ctx context.Context, namespace, connection, field string) ([]byte, error) {
	return orNone(a.embedded.ConnectionSecretOf(ctx, namespace, connection, field))
}

// sealedOfRepository is sealed for a Repository.
func (a *Agent) sealedOfRepository(ctx context.Context, l auth.Lookup, field string) ([]byte, error) {
	return orNone(a.embedded.SecretNamed(ctx, l.Namespace, l.Repository, field, l.Secure[field]))
}

// orNone has the search go on elsewhere for what is not in the state file.
func orNone(value []byte, err error) ([]byte, error) {
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// connection reads a Connection, nil when there is none or the server shows it
// to nobody.
func (a *Agent) connection(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := a.client.Resource(api.Connections).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil
	}
	if err != nil {
		return nil, api.Away(err)
	}
	return u, nil
}
