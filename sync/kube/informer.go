package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"limpet/sync/text"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// relistEvery is how often an Informer compares its cache with a full list: behind
// proxies and several servers a watch can lose events without any sign of it.
const relistEvery = 10 * time.Minute

// listPage is how many objects a list asks for at a time.
const listPage = 500

// InformerOptions narrow an Informer.
type InformerOptions struct {
	LabelSelector string
	// Compact keeps some hundred bytes of each object instead of some thousand.
	// Get and Unstructured then decode the object each time.
	Compact bool
}

// Informer keeps a cache of one resource up to date by a watch. It never gives up:
// errors are kept for LastError and tried again.
type Informer struct {
	client    *Client
	gvr       schema.GroupVersionResource
	namespace string
	options   InformerOptions
	relists   time.Duration // relistEvery
	store     *store
	reflector *cache.Reflector

	mu      sync.Mutex // guards the fields below and the growth of running
	started bool
	ended   bool // nothing may be added to running any more

	running     sync.WaitGroup // what client-go does not wait for when it ends
	lastError   atomic.Pointer[error]
	failures    atomic.Int64 // in a row, of lists, watches and their streams
	corrections atomic.Int64
	// relist ends the watch that runs, so that everything is listed again.
	relist chan struct{}
}

// Informer returns an Informer of the resource in one namespace, "" = all. It
// does nothing until Run.
func (c *Client) Informer(gvr schema.GroupVersionResource, namespace string, o InformerOptions) *Informer {
	i := &Informer{client: c, gvr: gvr, namespace: namespace, options: o, relists: relistEvery, store: newStore(),
		relist: make(chan struct{}, 1)}
	i.reflector = cache.NewReflectorWithOptions(listWatch{i}, nil, i.store,
		cache.ReflectorOptions{Name: gvr.String(), TypeDescription: gvr.String()})
	return i
}

// AddHandler adds a handler; before Run or later, in which case it first receives
// all objects of the cache, as Add calls.
func (i *Informer) AddHandler(h Handler) { i.store.addHandler(h) }

// How long an Informer waits before it lists again. Source: the reflector of client-go,
// whose own loop would log what is kept for LastError.
var relistPause = wait.Backoff{Duration: 800 * time.Millisecond, Cap: 30 * time.Second, Steps: 38, Factor: 2, Jitter: 1}

const relistPauseReset = 2 * time.Minute

// Run keeps the cache until ctx ends, and returns nil then, after all handlers
// have returned. It may be called once.
func (i *Informer) Run(ctx context.Context) error {
	i.mu.Lock()
	if i.started {
		i.mu.Unlock()
		return fmt.Errorf("informer of %s runs already or has ended", i.gvr.Resource)
	}
	i.started = true
	i.mu.Unlock()
	i.running.Go(func() { i.compareEvery(ctx) })
	_ = relistPause.DelayWithReset(clock.RealClock{}, relistPauseReset).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		i.setError(i.reflector.ListAndWatchWithContext(ctx))
		return false, nil
	})
	i.mu.Lock()
	i.ended = true
	i.mu.Unlock()
	i.running.Wait()
	return nil
}

// begin counts a call that Run has to wait for; false after the end of Run.
func (i *Informer) begin() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ended {
		i.running.Add(1)
	}
	return !i.ended
}

// HasSynced reports whether the cache has been complete once.
func (i *Informer) HasSynced() bool {
	select {
	case <-i.store.synced:
		return true
	default:
		return false
	}
}

// WaitSynced blocks until HasSynced. When ctx ends first, the error holds its
// cause and the last error of the server.
func (i *Informer) WaitSynced(ctx context.Context) error {
	select {
	case <-i.store.synced:
		return nil
	case <-ctx.Done():
	}
	if last := i.LastError(); last != nil {
		return fmt.Errorf("watch %s: %w (%w)", i.gvr.Resource, last, context.Cause(ctx))
	}
	return fmt.Errorf("watch %s: %w", i.gvr.Resource, context.Cause(ctx))
}

// Get returns an object of the cache, which must not be changed.
func (i *Informer) Get(namespace, name string) (*unstructured.Unstructured, bool) {
	o, ok := i.Lookup(namespace, name)
	return o.Unstructured(), ok
}

// Lookup returns an object of the cache.
func (i *Informer) Lookup(namespace, name string) (Object, bool) {
	return i.store.get(objectKey(namespace, name))
}

// Objects returns all objects of the cache, in no order.
func (i *Informer) Objects() []Object { return i.store.list() }

// List returns all objects of the cache, in no order. They must not be changed. It
// is for resources with few objects; see Objects.
func (i *Informer) List() []*unstructured.Unstructured {
	all := i.Objects()
	list := make([]*unstructured.Unstructured, len(all))
	for n, o := range all {
		list[n] = o.Unstructured()
	}
	return list
}

// LastError returns why the cache cannot be kept up to date at present, or nil.
func (i *Informer) LastError() error {
	if err := i.lastError.Load(); err != nil {
		return *err
	}
	return nil
}

// Corrections counts how often a full list showed that the watch had missed
// something.
func (i *Informer) Corrections() int64 { return i.corrections.Load() }

// cached returns what the store keeps of an object that has come from the server. A
// version that is stored already is not kept twice.
func (i *Informer) cached(u *unstructured.Unstructured) *cached {
	known, ok := i.Lookup(u.GetNamespace(), u.GetName())
	if ok && known.sameVersion(string(u.GetUID()), u.GetResourceVersion()) {
		return known.cached
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	if i.options.Compact {
		return compact(u)
	}
	return &cached{whole: u}
}

// clearError is called for each event, bookmark and page.
func (i *Informer) clearError() { i.lastError.Store(nil) }

// setError keeps an error for LastError. The end of the context is none, and
// neither is an expired version, which leads to a new list.
func (i *Informer) setError(err error) {
	if err == nil || errors.Is(err, context.Canceled) || isExpired(err) {
		return
	}
	err = text.RedactError(err)
	i.lastError.Store(&err)
}
