package agent

import (
	"context"
	"encoding/base64"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/worker"
)

// places returns where credentials and keys are looked up.
func (a *Agent) places() auth.Places {
	p := auth.Places{
		Secrets:  clusterSecrets{a.client, a},
		Dir:      a.cfg.CredentialsDir,
		Rules:    a.cfg.GitRules,
		Observer: observer{a},
	}
	if a.embedded != nil {
		p.Values = sealedValues{a.embedded}
	}
	return p
}

// credentials returns the look-up of credentials for Repositories.
func (a *Agent) credentials() auth.Source {
	p := a.places()
	p.Connections = a.minter.Source(a.connection)
	return a.identities.Source(p.WithTransport(p))
}

// sourceCredentials returns the look-up of credentials for GitRepositories.
func (a *Agent) sourceCredentials() auth.Source {
	p := a.places()
	return a.identities.Source(p.WithTransport(p.NamedSecret()))
}

// observer records which files are read. The dependency watcher is created after the
// places.
type observer struct{ a *Agent }

func (o observer) ObserveFiles(namespace, name string) { o.a.references.ObserveFiles(namespace, name) }

func (o observer) ObservePath(path string) { o.a.references.ObservePath(path) }

// clusterSecrets reads core Secrets. A server without Secrets, or one that forbids to
// read them, counts as one without this Secret.
type clusterSecrets struct {
	client *kube.Client
	agent  *Agent // observes what is read; nil = a program beside the agent
}

// Secret implements auth.Secrets.
func (s clusterSecrets) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	if s.agent != nil && s.agent.embedded != nil && apiserver.IsSealed(name) {
		return nil, nil // it is one of the secure values
	}
	u, err := s.client.Resource(api.Secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if s.agent != nil {
		s.agent.observeSecret(namespace, name, u, err)
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil
	}
	if err != nil {
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
		return orNone(v.server.ConnectionSecretOf(ctx, l.Namespace, l.Connection, field))
	}
	return orNone(v.server.SecretNamed(ctx, l.Namespace, l.Repository, field, l.Secure[field]))
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
