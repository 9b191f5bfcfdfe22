package source

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/text"
)

const (
	discoveryEvery   = 10 * time.Minute // between requests to an API without Flux or without permission
	unavailableDelay = time.Minute      // after an unavailable API
	checkEvery       = 15 * time.Second // between checks of the watch for a refusal, which cost no request
)

// Watcher caches the sources of one kind on an API that has them and allows to read them. On
// others it costs one request in ten minutes.
type Watcher struct {
	kind       api.Kind
	client     *kube.Client
	namespace  string
	log        *slog.Logger
	changed    func()
	handlers   []kube.Handler
	checkEvery time.Duration

	mu       sync.Mutex     // guards all below
	informer *kube.Informer // nil without a watch
	known    bool           // discovery has finished
	refused  string         // why sources cannot be read; "" = they can
}

// NewWatcher returns a watcher of a kind for a namespace, "" meaning all. It calls changed
// after every change, which must not block.
func NewWatcher(client *kube.Client, kind api.Kind, namespace string, log *slog.Logger, changed func()) *Watcher {
	return &Watcher{kind: kind, client: client, namespace: namespace, log: log, changed: changed, checkEvery: checkEvery}
}

// AddHandler adds a handler of changes, before Run. Each new watch begins with all sources.
func (w *Watcher) AddHandler(h kube.Handler) { w.handlers = append(w.handlers, h) }

// Run watches until ctx ends and returns nil then. No answer of the API ends it, and
// nothing else in the agent waits for it.
func (w *Watcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		delay := discoveryEvery
		switch served, err := w.served(ctx); {
		case ctx.Err() != nil:
			return nil
		case served:
			w.setRefused(w.watch(ctx))
		case err != nil && !kube.NotServed(err):
			delay = unavailableDelay
		default:
			w.setRefused(err)
		}
		_ = kube.Sleep(ctx, delay+rand.N(delay/10))
	}
	return nil
}

// served reports whether the API has sources and allows to list them.
func (w *Watcher) served(ctx context.Context) (bool, error) {
	served, err := w.client.Serves(ctx, w.kind.Resource().GroupVersion(), w.kind.Plural)
	if !served || err != nil {
		return false, err
	}
	_, err = w.client.Resource(w.kind.Resource()).Namespace(w.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	return err == nil, err
}

// setRefused records that there is no watch, and why if it is forbidden.
func (w *Watcher) setRefused(err error) {
	why := ""
	if err != nil && !apierrors.IsNotFound(err) {
		why = text.Redact(err.Error()) + " (it takes get, list and watch of " + w.kind.Plural + "." + w.kind.Group + ")"
	}
	w.mu.Lock()
	news := !w.known || why != w.refused
	w.known, w.refused = true, why
	w.mu.Unlock()
	if news && why != "" {
		w.log.Info("list sources of Flux", "err", why)
	}
	if news {
		w.changed()
	}
}

// watch runs the informer until ctx ends, or until the API no longer serves sources:
// then it returns the error of the API.
func (w *Watcher) watch(ctx context.Context) (refusal error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer := w.client.Informer(w.kind.Resource(), w.namespace, kube.InformerOptions{})
	for _, h := range append(w.handlers, kube.Handler{Any: w.changed}) {
		informer.AddHandler(h)
	}
	w.mu.Lock()
	w.informer = informer
	w.mu.Unlock()
	var running sync.WaitGroup
	running.Go(func() { _ = informer.Run(ctx) }) // it returns nil when ctx ends, and only then
	running.Go(func() {
		if informer.WaitSynced(ctx) == nil {
			w.setRefused(nil)
			w.changed()
		}
	})
	for kube.Sleep(ctx, w.checkEvery) == nil {
		if err := informer.LastError(); kube.NotServed(err) {
			refusal = err
			cancel()
		}
	}
	running.Wait()
	w.mu.Lock()
	w.informer = nil
	w.mu.Unlock()
	w.changed()
	return refusal
}

// Objects returns the cached sources in no order. known is false until discovery has finished.
func (w *Watcher) Objects() (all []kube.Object, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.informer != nil {
		all = w.informer.Objects()
	}
	return all, w.known
}

// Get returns a cached source, nil when there is none. known is false while the cache may lack
// some.
func (w *Watcher) Get(namespace, name string) (u *unstructured.Unstructured, known bool) {
	w.mu.Lock()
	informer := w.informer
	w.mu.Unlock()
	if informer == nil {
		return nil, false
	}
	if o, ok := informer.Lookup(namespace, name); ok {
		return o.Unstructured(), true
	}
	return nil, informer.HasSynced() && (w.namespace == "" || w.namespace == namespace)
}

// Refused returns why sources cannot be read; "" means that they can, or that there are none.
func (w *Watcher) Refused() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// Watch returns the state of the watch; on is false when there is none and none is refused.
func (w *Watcher) Watch() (synced bool, objects int, problem string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.informer == nil {
		return false, 0, w.refused, w.refused != ""
	}
	if err := w.informer.LastError(); err != nil {
		problem = text.Redact(err.Error())
	}
	return w.informer.HasSynced(), len(w.informer.Objects()), problem, true
}

// Watchers are those of all kinds, in the order of api.SourceKinds.
type Watchers []*Watcher

// Of returns the watcher of a kind, nil for another kind.
func (all Watchers) Of(kind string) *Watcher {
	for _, w := range all {
		if w.kind.Kind == kind {
			return w
		}
	}
	return nil
}

// Get returns a source of a kind; see Watcher.Get.
func (all Watchers) Get(kind, namespace, name string) (u *unstructured.Unstructured, known bool) {
	if w := all.Of(kind); w != nil {
		return w.Get(namespace, name)
	}
	return nil, false
}

// Run runs all of them until ctx ends.
func (all Watchers) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, w := range all {
		running.Go(func() { _ = w.Run(ctx) }) // it returns nil
	}
	running.Wait()
	return nil
}

// Objects returns the cached sources of all kinds. known is false until discovery has finished.
func (all Watchers) Objects() (out []kube.Object, known bool) {
	known = true
	for _, w := range all {
		objects, there := w.Objects()
		out, known = append(out, objects...), known && there
	}
	return out, known
}

// Refused returns why sources of some kind cannot be read, "" for none.
func (all Watchers) Refused() string {
	for _, w := range all {
		if why := w.Refused(); why != "" {
			return why
		}
	}
	return ""
}

// Watch returns the state of all watches; on is false when there is none and none is refused.
func (all Watchers) Watch() (synced bool, objects int, problem string, on bool) {
	synced = true
	for _, w := range all {
		if ready, n, why, is := w.Watch(); is {
			synced, objects, problem, on = synced && ready, objects+n, cmp.Or(problem, why), true
		}
	}
	return synced && on, objects, problem, on
}
