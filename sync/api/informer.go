package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// relistEvery is how often an Informer compares its picture with a full list,
// whatever the watch says: a watch can be silent or lose events behind proxies
// and several servers, and nothing in it tells.
const relistEvery = 10 * time.Minute

// Handler receives the changes of an Informer, in order, from one goroutine
// per Handler. Functions may be nil. They must be quick and must not change the
// objects, which belong to the cache.
type Handler struct {
	Add    func(obj *unstructured.Unstructured)
	Update func(old, new *unstructured.Unstructured)
	// Delete may receive an older state of the object than its last one, when
	// the deletion itself was not seen.
	Delete func(obj *unstructured.Unstructured)
}

// InformerOptions narrow an Informer.
type InformerOptions struct {
	LabelSelector string
}

// Informer is a local picture of one resource, kept by a watch. It never gives
// up: errors are kept for LastError and tried again.
type Informer struct {
	client    *Client
	gvr       schema.GroupVersionResource
	namespace string
	options   InformerOptions
	relists   time.Duration // relistEvery
	shared    cache.SharedIndexInformer

	started atomic.Bool
	endMu   sync.Mutex     // guards ended and the growth of running
	ended   bool           // nothing may be added to running any more
	running sync.WaitGroup // what client-go does not wait for when it ends

	lastError atomic.Pointer[error]
	failures  atomic.Int64 // in a row, of lists, watches and their streams
	fixes     atomic.Int64

	// refusedAt is when the server did not serve the initial events of a
	// watch, as UnixNano; 0 = it does, as far as is known.
	refusedAt atomic.Int64
	// fresh makes the next picture come from a consistent read, not from a
	// server's cache that may be as old as ours.
	fresh atomic.Bool
	// relist ends the watch that runs, so that the picture is made anew.
	relist chan struct{}
}

// Informer returns an Informer of the resource in one namespace, "" = all. It
// does nothing until Run.
func (c *Client) Informer(gvr schema.GroupVersionResource, namespace string, o InformerOptions) *Informer {
	i := &Informer{client: c, gvr: gvr, namespace: namespace, options: o, relists: relistEvery, relist: make(chan struct{}, 1)}
	i.shared = cache.NewSharedIndexInformerWithOptions(
		&cache.ListWatch{ListWithContextFunc: i.list, WatchFuncWithContext: i.watch},
		&unstructured.Unstructured{},
		cache.SharedIndexInformerOptions{ObjectDescription: gvr.String()},
	)
	// Both fail only on an informer that was started.
	_ = i.shared.SetTransform(i.transform)
	_ = i.shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { i.note(err) })
	return i
}

// OnEvent adds a handler; before Run or later, in which case it first receives
// the picture as it is, as Add calls.
func (i *Informer) OnEvent(h Handler) {
	_, err := i.shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if u, ok := obj.(*unstructured.Unstructured); ok && h.Add != nil {
				h.Add(u)
			}
		},
		UpdateFunc: func(old, new any) {
			was, ok1 := old.(*unstructured.Unstructured)
			is, ok2 := new.(*unstructured.Unstructured)
			if ok1 && ok2 && h.Update != nil {
				h.Update(was, is)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if u, ok := obj.(*unstructured.Unstructured); ok && h.Delete != nil {
				h.Delete(u)
			}
		},
	})
	if err != nil { // only after the end of Run, when nothing happens any more
		i.client.shared.log.Debug("add a handler to a stopped informer", "resource", i.gvr.Resource, "err", err)
	}
}

// Run keeps the picture until ctx ends, and returns nil then, after all
// handlers have returned. It may be called once.
func (i *Informer) Run(ctx context.Context) error {
	if i.started.Swap(true) {
		return fmt.Errorf("informer of %s runs already or has ended", i.gvr.Resource)
	}
	i.running.Go(func() { i.compareEvery(ctx) })
	i.shared.RunWithContext(ctx)
	i.endMu.Lock()
	i.ended = true
	i.endMu.Unlock()
	i.running.Wait()
	return nil
}

// begin counts a call that Run has to wait for; false after the end of Run.
func (i *Informer) begin() bool {
	i.endMu.Lock()
	defer i.endMu.Unlock()
	if !i.ended {
		i.running.Add(1)
	}
	return !i.ended
}

// HasSynced says whether the picture has been complete once.
func (i *Informer) HasSynced() bool { return i.shared.HasSynced() }

// WaitSynced blocks until HasSynced. When ctx ends first, the error holds its
// cause and the last error of the server.
func (i *Informer) WaitSynced(ctx context.Context) error {
	select {
	case <-i.shared.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
	}
	if last := i.LastError(); last != nil {
		return fmt.Errorf("watch %s: %w (%w)", i.gvr.Resource, last, context.Cause(ctx))
	}
	return fmt.Errorf("watch %s: %w", i.gvr.Resource, context.Cause(ctx))
}

// Get returns an object of the picture, which must not be changed.
func (i *Informer) Get(namespace, name string) (*unstructured.Unstructured, bool) {
	obj, found, err := i.shared.GetStore().GetByKey(objectKey(namespace, name))
	u, ok := obj.(*unstructured.Unstructured)
	return u, found && ok && err == nil
}

// List returns all objects of the picture, in no order. They must not be
// changed.
func (i *Informer) List() []*unstructured.Unstructured {
	all := i.shared.GetStore().List()
	list := make([]*unstructured.Unstructured, 0, len(all))
	for _, obj := range all {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			list = append(list, u)
		}
	}
	return list
}

// LastError returns why the picture cannot be kept up to date at present, or
// nil.
func (i *Informer) LastError() error {
	if err := i.lastError.Load(); err != nil {
		return *err
	}
	return nil
}

// Corrections counts how often a full list showed that the watch had missed
// something.
func (i *Informer) Corrections() int64 { return i.fixes.Load() }

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// transform leaves out of the picture what nobody reads there.
func (i *Informer) transform(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // a tombstone
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	return u, nil
}

// alive notes a sign of life: an event, a bookmark, a list.
func (i *Informer) alive() { i.lastError.Store(nil) }

// note keeps an error for LastError. The end of the context is none, and
// neither is an expired version, which leads to a new list.
func (i *Informer) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) || isExpired(err) {
		return
	}
	err = redactError(err)
	i.lastError.Store(&err)
}

// list implements the list of the reflector. It returns errors only that the
// reflector has an answer to, and waits and repeats on all others: client-go's
// own repetitions know nothing of the other informers.
func (i *Informer) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if !i.begin() {
		return nil, errEnded
	}
	defer i.running.Done()
	o.LabelSelector = i.options.LabelSelector
	if i.fresh.Load() {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
	var list *unstructured.UnstructuredList
	err := i.untilAnswered(ctx, nil, func(ctx context.Context) (err error) {
		list, err = i.client.Resource(i.gvr).Namespace(i.namespace).List(withTimeout(ctx, listTimeout), o)
		return err
	})
	if err != nil {
		return nil, err
	}
	i.alive()
	i.failures.Store(0)
	if list.GetContinue() == "" {
		i.fresh.Store(false)
	}
	return list, nil
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
		relist = nil // a new picture is what is being made
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
	i.alive()
	i.running.Add(1) // not at zero: this call is counted
	g := &guarded{informer: i, inner: w, out: make(chan watch.Event), stop: make(chan struct{})}
	go func() {
		defer i.running.Done()
		g.run(initial, o.TimeoutSeconds)
	}()
	return g, nil
}
