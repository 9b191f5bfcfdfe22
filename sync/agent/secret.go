package agent

import (
	"context"
	"encoding/base64"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/kube"
)

// proxySecret reads the Secret of a proxy, or the files of the credentials directory
// that stand for it: <namespace>.<secret>/address, username, password.
func (a *Agent) proxySecret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	data, err := a.secret(ctx, namespace, name)
	if err != nil || data != nil || a.cfg.CredentialsDir == "" {
		return data, err
	}
	data = map[string][]byte{}
	for _, key := range []string{"address", "username", "password"} {
		if data[key], err = auth.Value(a.cfg.CredentialsDir, namespace, name, key); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// secret reads a core Secret. A server that has no Secrets, or shows them to
// nobody, is the same as one where this Secret is not there: the look-up goes
// on at the next place.
func (a *Agent) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	if a.embedded != nil && apiserver.IsSealed(name) {
		return nil, nil // every look at a remote would ask for it in vain
	}
	u, err := a.client.Resource(api.Secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	a.sawSecret(namespace, name, u, err)
	return secretData(namespace, name, u, err)
}

// secretData is what a Secret holds, as it was read.
func secretData(namespace, name string, u *unstructured.Unstructured, err error) (map[string][]byte, error) {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil
	}
	if err != nil {
		return nil, kube.AsUnavailable(err)
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", namespace, name, err)
	}
	out := make(map[string][]byte, len(data))
	for key, text := range data {
		if out[key], err = base64.StdEncoding.DecodeString(text); err != nil {
			// The error of the decoder would show where in the secret it is.
			return nil, fmt.Errorf("read secret %s/%s: key %s is not base64", namespace, name, key)
		}
	}
	return out, nil
}
