package dependency

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
)

const (
	// maxNamed is how many Secrets of a namespace are watched one by one, which needs no
	// right but for these. More are watched together: metadata of all of the namespace.
	maxNamed = 3
	// maxStreams bounds the watches that are open at once.
	maxStreams = 100
	// deniedPause is the pause after a server has said that it has no Secrets, or that this agent may
	// not watch them.
	deniedPause = 30 * time.Minute
	// The pause after other failures, doubled each time, and the life of a stream after which it
	// starts again.
	firstPause, lastPause, steady = time.Second, time.Minute, time.Minute
)

// scope is what one stream watches: a Secret or, without a name, those of a namespace. Never those
// of all namespaces.
type scope struct{ namespace, name string }

// scopes returns the streams that show all Secrets that are used, and how many more
// there would be than maxStreams. refs are in order.
func scopes(refs []Ref) (out []scope, over int) {
	count := map[string]int{}
	for _, ref := range refs {
		count[ref.Namespace]++
	}
	for _, ref := range refs {
		s := scope{namespace: ref.Namespace}
		if count[ref.Namespace] <= maxNamed {
			s.name = ref.Name
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	over = max(0, len(out)-maxStreams)
	return out[:len(out)-over], over
}

// watchSecrets keeps the streams open that show what is used, until ctx ends.
func (w *Watcher) watchSecrets(ctx context.Context) {
	running := map[scope]context.CancelFunc{}
	var all sync.WaitGroup
	defer all.Wait()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.used:
		}
		// At the start each object adds its own: one plan for all of them.
		if kube.Sleep(ctx, settle) != nil {
			return
		}
		wanted, over := scopes(w.registry.used(Secret))
		if over > 0 && !warned {
			w.o.Logger.Warn("too many namespaces to watch the Secrets of all; a change in the others is found at the next check",
				"watched", maxStreams, "not_watched", over)
			warned = true
		}
		for s, stop := range running {
			if !slices.Contains(wanted, s) {
				stop()
				delete(running, s)
			}
		}
		for _, s := range wanted {
			if running[s] == nil {
				life, stop := context.WithCancel(ctx)
				running[s] = stop
				all.Go(func() { w.stream(life, s); stop() })
			}
		}
	}
}

// stream follows the Secrets of a scope until ctx ends.
func (w *Watcher) stream(ctx context.Context, s scope) {
	next := firstPause
	for w.o.Client.WaitAvailable(ctx) == nil {
		began := time.Now()
		err := w.streamOnce(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= steady {
			next = firstPause
		}
		wait := next
		if kube.NotServed(err) {
			wait = deniedPause
			if _, logged := w.denied.LoadOrStore(s.namespace, true); !logged && apierrors.IsForbidden(err) {
				w.o.Logger.Info("Secrets may not be watched; a change is found at the next check, within a minute for an unhealthy object",
					"namespace", s.namespace, "err", err)
			}
		} else {
			if err != nil {
				w.o.Logger.Debug("cannot watch Secrets", "namespace", s.namespace, "err", err, "retry_in", wait)
			}
			next = min(2*next, lastPause)
		}
		if kube.Sleep(ctx, wait+rand.N(wait/10+1)) != nil {
			return
		}
	}
}

// streamOnce opens a stream and reads it to its end. Secrets that it does not list have been
// deleted.
func (w *Watcher) streamOnce(ctx context.Context, s scope) error {
	listed := map[string]bool{}
	return w.o.Client.WatchVersions(ctx, w.resource, s.namespace, s.name, func(v kube.ObjectVersion) {
		if listed != nil && v.Version != "" {
			listed[v.Name] = true
		}
		w.Observe(Ref{Secret, v.Namespace, v.Name}, v.Version)
	}, func() {
		for _, ref := range w.registry.used(Secret) {
			if ref.Namespace == s.namespace && !listed[ref.Name] && (s.name == "" || s.name == ref.Name) {
				w.Observe(ref, "")
			}
		}
		listed = nil
	})
}

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
