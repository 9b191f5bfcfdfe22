package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"limpet/sync/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// relistEvery is how often an Informer compares its cache with a full list: behind
// proxies and several servers a watch can lose events without any sign of it.
const relistEvery = 10 * time.Minute

// listPage is how many objects a list asks for at a time.
const listPage = 500

// Handler receives the changes of an Informer, in order, one at a time, on a
// goroutine of its own. Functions may be nil.
type Handler struct {
	Add    func(obj Object)
	Update func(old, new Object)
	// Delete may receive an older version than the last one, when the deletion
	// itself was not seen; then FromList is true.
	Delete func(obj Object)
	// Any is called at every change, before the others.
	Any func()
	// Listing is called with true before the first change that a list has brought,
	// and with false before the next one that has come from the watch: only those
	// come in the order of the server. See Object.FromList.
	Listing func(on bool)
}

// events returns the handler in the form of client-go.
func (h Handler) events() cache.ResourceEventHandler {
	listing := false
	before := func(o Object) {
		if h.Listing != nil && o.FromList() != listing {
			listing = !listing
			h.Listing(listing)
		}
		if h.Any != nil {
			h.Any()
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			o := objectIn(obj)
			if initial && !o.FromList() {
				o = o.AsListed()
			}
			before(o)
			if h.Add != nil {
				h.Add(o)
			}
		},
		UpdateFunc: func(old, obj any) {
			o := objectIn(obj)
			before(o)
			if h.Update != nil {
				h.Update(objectIn(old), o)
			}
		},
		DeleteFunc: func(obj any) {
			o := objectIn(obj)
			before(o)
			if h.Delete != nil {
				h.Delete(o)
			}
		},
	}
}

// objectIn returns what the store of client-go holds or held.
func objectIn(obj any) Object {
	switch obj := obj.(type) {
	case *cached:
		return Object{obj}
	case cache.DeletedFinalStateUnknown:
		return objectIn(obj.Obj).AsListed()
	}
	return Object{}
}

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
	shared    cache.SharedIndexInformer

	mu       sync.Mutex // guards the fields below and the growth of running
	handlers []cache.ResourceEventHandlerRegistration
	started  bool
	ended    bool // nothing may be added to running any more

	running     sync.WaitGroup // what client-go does not wait for when it ends
	synced      atomic.Bool    // it never becomes false again
	lastError   atomic.Pointer[error]
	failures    atomic.Int64 // in a row, of lists, watches and their streams
	corrections atomic.Int64

	// refusedAt is when the server did not serve the initial events of a
	// watch, as UnixNano; 0 = it does, as far as is known.
	refusedAt atomic.Int64
	// fresh makes the next list come from a consistent read, not from a
	// server's cache that may be as old as ours.
	fresh atomic.Bool
	// relist ends the watch that runs, so that everything is listed again.
	relist chan struct{}
}

// Informer returns an Informer of the resource in one namespace, "" = all. It
// does nothing until Run.
func (c *Client) Informer(gvr schema.GroupVersionResource, namespace string, o InformerOptions) *Informer {
	i := &Informer{client: c, gvr: gvr, namespace: namespace, options: o, relists: relistEvery, relist: make(chan struct{}, 1)}
	i.shared = cache.NewSharedIndexInformerWithOptions(
		&cache.ListWatch{ListWithContextFunc: i.list, WatchFuncWithContext: i.watch}, nil,
		cache.SharedIndexInformerOptions{ObjectDescription: gvr.String()})
	// It fails only once the informer runs.
	_ = i.shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { i.setError(err) })
	return i
}

// AddHandler adds a handler; before Run or later, in which case it first receives
// all objects of the cache, as Add calls.
func (i *Informer) AddHandler(h Handler) {
	registered, err := i.shared.AddEventHandler(h.events())
	if err != nil {
		return // Run has ended, so there are no changes any more
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, registered)
}

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
	i.shared.RunWithContext(ctx)
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

// HasSynced reports whether the cache has been complete once and the handlers have
// received what was in it.
func (i *Informer) HasSynced() bool {
	for _, c := range i.syncing() {
		if !cache.IsDone(c) {
			return false
		}
	}
	i.synced.Store(true)
	return true
}

// syncing returns what HasSynced and WaitSynced wait for.
func (i *Informer) syncing() []cache.DoneChecker {
	if i.synced.Load() {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	checks := []cache.DoneChecker{i.shared.HasSyncedChecker()}
	for _, h := range i.handlers {
		checks = append(checks, h.HasSyncedChecker())
	}
	return checks
}

// WaitSynced blocks until HasSynced. When ctx ends first, the error holds its
// cause and the last error of the server.
func (i *Informer) WaitSynced(ctx context.Context) error {
	for _, c := range i.syncing() {
		select {
		case <-c.Done():
			continue
		case <-ctx.Done():
		}
		if last := i.LastError(); last != nil {
			return fmt.Errorf("watch %s: %w (%w)", i.gvr.Resource, last, context.Cause(ctx))
		}
		return fmt.Errorf("watch %s: %w", i.gvr.Resource, context.Cause(ctx))
	}
	i.synced.Store(true)
	return nil
}

// Get returns an object of the cache, which must not be changed.
func (i *Informer) Get(namespace, name string) (*unstructured.Unstructured, bool) {
	o, ok := i.Lookup(namespace, name)
	return o.Unstructured(), ok
}

// Lookup returns an object of the cache.
func (i *Informer) Lookup(namespace, name string) (Object, bool) {
	obj, ok, _ := i.shared.GetIndexer().GetByKey(objectKey(namespace, name))
	return objectIn(obj), ok
}

// Objects returns all objects of the cache, in no order.
func (i *Informer) Objects() []Object {
	all := i.shared.GetIndexer().List()
	objects := make([]Object, len(all))
	for n, obj := range all {
		objects[n] = objectIn(obj)
	}
	return objects
}

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
// version that is in the store is not kept twice. SetTransform of client-go comes too
// late for this: it would see the pages of a list only when all of them are there.
func (i *Informer) cached(u *unstructured.Unstructured, event watch.EventType, listed bool) *cached {
	known, ok := i.Lookup(u.GetNamespace(), u.GetName())
	if ok && event != watch.Deleted && known.sameVersion(string(u.GetUID()), u.GetResourceVersion()) {
		return known.cached
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	c := &cached{whole: u}
	if i.options.Compact {
		c = compact(u)
	}
	c.listed = listed
	return c
}

// clearError notes a sign of life: an event, a bookmark, a list.
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

// list implements the list of the reflector. It returns only errors that the reflector
// can handle, and waits and retries on all others: client-go's
// own retries do not know of the other informers. It always reads what is stored now,
// page by page: the cache of a server, which the reflector prefers, answers with all
// objects at once.
func (i *Informer) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	if !i.begin() {
		return nil, errEnded
	}
	defer i.running.Done()
	o := metav1.ListOptions{LabelSelector: i.options.LabelSelector, Limit: listPage}
	var items []*cached
	for {
		var page *unstructured.UnstructuredList
		err := i.untilAnswered(ctx, nil, func(ctx context.Context) (err error) {
			page, err = i.client.Resource(i.gvr).Namespace(i.namespace).List(withTimeout(ctx, listTimeout), o)
			return err
		})
		if err != nil {
			return nil, err
		}
		i.clearError()
		i.failures.Store(0)
		for n := range page.Items {
			items = append(items, i.cached(&page.Items[n], watch.Added, true))
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			i.fresh.Store(false)
			return &cachedList{ListMeta: metav1.ListMeta{ResourceVersion: page.GetResourceVersion()}, Items: items}, nil
		}
	}
}

// watch implements the watch of the reflector in the same way.
func (i *Informer) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !i.begin() {
		return nil, errEnded
	}
	defer i.running.Done()
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	if initial && i.refusesInitial() {
		return nil, errNoInitialEvents
	}
	relist := i.relist
	if initial {
		relist = nil // everything is being listed already
		if i.fresh.Load() {
			o.ResourceVersion = ""
		}
	}
	o.LabelSelector = i.options.LabelSelector
	if i.failures.Load() > 0 { // the last stream broke
		if err := i.pause(ctx, relist, nil); err != nil {
			return nil, err
		}
	}
	var w watch.Interface
	err := i.untilAnswered(ctx, relist, func(ctx context.Context) (err error) {
		note := new(call)
		w, err = i.client.Resource(i.gvr).Namespace(i.namespace).Watch(withCall(ctx, note), o)
		if err == nil && note.err != nil { // client-go makes an empty watch of some errors
			w.Stop()
			err = note.err
		}
		if err != nil && initial {
			return i.judgeInitial(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	i.clearError()
	i.running.Add(1) // not at zero: this call is counted
	g := &guardedWatch{informer: i, inner: w, out: make(chan watch.Event), stop: make(chan struct{})}
	go func() {
		defer i.running.Done()
		g.run(initial, o.TimeoutSeconds)
	}()
	return g, nil
}
