package kube

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"limpet/sync/text"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

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
	selector  string
	store     *store
	reflector *cache.Reflector
	lastError atomic.Pointer[error]
}

// Informer returns an Informer of the resource in one namespace, "" = all. It does nothing until Run.
func (c *Client) Informer(gvr schema.GroupVersionResource, namespace string, o InformerOptions) *Informer {
	i := &Informer{client: c, gvr: gvr, namespace: namespace, selector: o.LabelSelector, store: newStore(o.Compact)}
	i.reflector = cache.NewReflectorWithOptions(&listWatch{Informer: i}, nil, i.store,
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

// Run keeps the cache until ctx ends, and returns nil then, after all handlers have returned. It may be called once.
func (i *Informer) Run(ctx context.Context) error {
	_ = relistPause.DelayWithReset(clock.RealClock{}, relistPauseReset).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		i.setError(i.reflector.ListAndWatchWithContext(ctx))
		return false, nil
	})
	return nil
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

// WaitSynced blocks until HasSynced. When ctx ends first, the error holds its cause and the last error of the server.
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

// Stuck returns why the cache is not kept up to date although the server answers, "" when it is.
func (i *Informer) Stuck() string {
	if at := i.store.moved.Load(); at != nil && time.Since(*at) > watchLimit {
		return fmt.Sprintf("watch of %s: no event, bookmark or list for %s, its deadline is %s", i.gvr.Resource,
			time.Since(*at).Round(time.Second), watchLimit)
	}
	return ""
}

// setError keeps an error for LastError. The end of the context is none, and
// neither is an expired version, which leads to a new list.
func (i *Informer) setError(err error) {
	if err == nil || errors.Is(err, context.Canceled) || isExpired(err) {
		return
	}
	err = text.RedactError(err)
	i.lastError.Store(&err)
}
