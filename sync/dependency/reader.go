package dependency

import (
	"context"
	"encoding/base64"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Reader reads what others use and reports its version to a Watcher. A server that does
// not serve a kind, or forbids to read it, counts as one without the object.
type Reader struct {
	Client  *kube.Client
	Watcher *Watcher                 // nil = nothing wants to know
	Sealed  func(secret string) bool // Secrets that are secure values of the server; nil = none
}

// Secret implements auth.Secrets.
func (r Reader) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	if r.Sealed != nil && r.Sealed(name) {
		return nil, nil
	}
	u, err := r.Client.Resource(api.Secrets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	r.Watcher.ObserveSecret(namespace, name, u, err)
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

// Connection returns a Connection, nil when there is none. The observed version changes
// with the spec and with the health.
func (r Reader) Connection(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := r.Client.Resource(api.Connections).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
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
	r.Watcher.Observe(Ref{Connection, namespace, name}, version)
	return u, nil
}
