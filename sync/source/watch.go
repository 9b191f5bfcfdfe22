package source

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/text"
)

const (
	// discoveryEvery is how often an API without Flux, or one that refuses, is asked whether
	// that is still so: one request.
	discoveryEvery = 10 * time.Minute
	// unavailableDelay is the pause after an API that did not answer at all.
	unavailableDelay = time.Minute
	// checkEvery is how often the watch is asked whether it is refused now. It costs
	// no request.
	checkEvery = 15 * time.Second
)

// Watcher keeps a picture of all sources where the API has such things and lets them
// be read. Elsewhere it costs a request in ten minutes.
type Watcher struct {
	client     *kube.Client
	namespace  string
	log        *slog.Logger
	changed    func()
	checkEvery time.Duration

	mu       sync.Mutex     // guards all below
	informer *kube.Informer // nil while nothing is watched
	known    bool           // it is known whether there are any
	refused  string         // why they may not be read
}

// NewWatcher makes one for a namespace, "" meaning all. changed is called at every
// change and must be quick.
func NewWatcher(client *kube.Client, namespace string, log *slog.Logger, changed func()) *Watcher {
	return &Watcher{client: client, namespace: namespace, log: log, changed: changed, checkEvery: checkEvery}
}

// Run watches until ctx ends, and returns nil then. Nothing that an API answers ends
// it, and nothing else in the agent waits for it.
func (w *Watcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		rest := discoveryEvery
		switch served, err := w.served(ctx); {
		case ctx.Err() != nil:
			return nil
		case served:
			w.setRefused(w.watch(ctx))
		case err != nil && !permanent(err):
			rest = unavailableDelay
		case err != nil:
			w.setRefused(err)
		default:
			w.setRefused(nil)
		}
		timer := time.NewTimer(rest + rand.N(rest/10))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
	return nil
}

// served reports whether the API has sources and shows them.
func (w *Watcher) served(ctx context.Context) (bool, error) {
	served, err := w.client.Has(ctx, api.GitRepositories)
	if !served || err != nil {
		return false, err
	}
	_, err = w.client.Resource(api.GitRepositories).Namespace(w.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	return err == nil, err
}

// permanent reports that an answer will be the same in a minute.
func permanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// setRefused notes that nothing is watched, and why if that is because it is refused.
func (w *Watcher) setRefused(err error) {
	why := ""
	if err != nil && !apierrors.IsNotFound(err) {
		why = text.Redact(err.Error()) + " (it takes get, list and watch of gitrepositories." + api.GitRepositories.Group + ")"
	}
	w.mu.Lock()
	news := !w.known || why != w.refused
	w.known, w.refused = true, why
	w.mu.Unlock()
	if news && why != "" {
		w.log.Info("the sources of Flux are not shown: they may not be read", "err", why)
	}
	if news {
		w.changed()
	}
}

// watch watches until ctx ends, or the API does not have or show them any more: then
// it returns what the API says.
func (w *Watcher) watch(ctx context.Context) (refusal error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer := w.client.Informer(api.GitRepositories, w.namespace, kube.InformerOptions{Compact: true})
	informer.AddHandler(kube.Handler{Any: w.changed})
	w.mu.Lock()
	w.informer = informer
	w.mu.Unlock()
	var running sync.WaitGroup
	running.Go(func() { _ = informer.Run(ctx) }) // it returns nil when ctx ends, and only then
	running.Go(func() {
		if informer.WaitSynced(ctx) != nil {
			return
		}
		w.mu.Lock()
		w.known, w.refused = true, ""
		w.mu.Unlock()
		w.changed()
	})
	tick := time.NewTicker(w.checkEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if err := informer.LastError(); err != nil && permanent(err) {
				refusal = err
				cancel()
			}
		}
	}
	running.Wait()
	w.mu.Lock()
	w.informer = nil
	w.mu.Unlock()
	w.changed()
	return refusal
}

// Objects are the sources that are known, in no order. known is false until it is
// known whether there are any.
func (w *Watcher) Objects() (all []kube.Object, known bool) {
	w.mu.Lock()
	informer, known := w.informer, w.known
	w.mu.Unlock()
	if informer == nil {
		return nil, known
	}
	return informer.Objects(), known
}

// Refused is why they may not be read; "" = they may, or there are none.
func (w *Watcher) Refused() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// Watch returns how the watch does; nil = there is none, and nothing refuses it.
func (w *Watcher) Watch() (synced bool, objects int, trouble string, on bool) {
	w.mu.Lock()
	informer, refused := w.informer, w.refused
	w.mu.Unlock()
	if informer == nil {
		return false, 0, refused, refused != ""
	}
	if err := informer.LastError(); err != nil {
		trouble = text.Redact(err.Error())
	}
	return informer.HasSynced(), len(informer.Objects()), trouble, true
}
