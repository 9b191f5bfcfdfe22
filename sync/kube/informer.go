package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"limpet/sync/text"
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

// Informer returns an Informer of the resource in one namespace, "" = all. It does nothing until
// Run.
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

// Run keeps the cache until ctx ends, and returns nil then, after all handlers have returned. It
// may be called once.
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

// WaitSynced blocks until HasSynced. When ctx ends first, the error holds its cause and the last
// error of the server.
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

// listWatch is how the reflector of an Informer lists and watches servers that fail or
// refuse. It returns only errors that the reflector can handle, and waits and tries
// again on all others: client-go's own retries do not know of the other informers.
//
// A watch that has lost events, behind proxies and several servers, looks like a quiet one. So
// everything is listed again from time to time; objects that have not changed are no change for the
// handlers.
type listWatch struct {
	*Informer
	relist   time.Time // when everything is listed again
	failures int       // in a row, of lists and watches
	opened   time.Time // of the last watch
	short    int       // watches in a row that ended at once
}

const (
	// relistEvery is how often an Informer lists everything, up to a tenth later.
	relistEvery = 10 * time.Minute
	// watchLimit is how long an Informer may do nothing: a watch ends when it is time to list again.
	watchLimit = relistEvery + relistEvery/10 + 4*listTimeout
	// listPage is how many objects a list asks for at a time.
	listPage = 500
	// listTimeout is the deadline of one page of a list. It is longer than
	// that of other calls: lists are large, links are slow, no lease hangs on it.
	listTimeout = 60 * time.Second

	// The pauses of one Informer after errors in a row; those of a server
	// that does not answer at all are common to all (availability).
	informerFirstPause = time.Second
	informerLastPause  = 20 * time.Second
	// shortWatch is how long a watch must last for the next one to follow at once.
	shortWatch = 10 * time.Second
)

// errRelist makes the reflector list again.
var errRelist = apierrors.NewResourceExpired("everything is listed again")

// isExpired reports whether a resource version is too old, or newer than the server
// knows: the reflector then starts again.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// IsWatchListSemanticsUnSupported makes the reflector list before it watches. A watch
// with initial events would be one request, but a server that ignores the parameter never
// marks their end, and the reflector keeps all objects a second time while they come.
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

func (l *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

func (l *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWatcherWithContext. It always reads what is
// stored now, page by page, because the cache of a server answers with all objects at once.
func (l *listWatch) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	l.relist = time.Now().Add(relistEvery + rand.N(relistEvery/10))
	var list cachedList
	o := metav1.ListOptions{LabelSelector: l.selector, Limit: listPage}
	for {
		err := l.untilAnswered(ctx, func(ctx context.Context) error {
			page, err := l.client.Resource(l.gvr).Namespace(l.namespace).List(withCall(ctx, &call{timeout: listTimeout}), o)
			if err != nil {
				return err
			}
			for n := range page.Items {
				list.Items = append(list.Items, l.store.cached(&page.Items[n]))
			}
			o.Continue, list.ResourceVersion = page.GetContinue(), page.GetResourceVersion()
			return nil
		})
		if err != nil {
			return nil, err
		}
		if o.Continue == "" {
			return &list, nil
		}
	}
}

// WatchWithContext implements cache.ListerWatcherWithContext. The watch ends when it is time to
// list again.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
	o.LabelSelector = l.selector
	if time.Since(l.opened) >= shortWatch {
		l.short = 0
	} else if err := l.pause(ctx, &l.short, nil); err != nil {
		return nil, err
	}
	err = l.untilAnswered(ctx, func(ctx context.Context) (err error) {
		left := int64(time.Until(l.relist) / time.Second)
		if left <= 0 {
			return errRelist
		}
		if o.TimeoutSeconds == nil || *o.TimeoutSeconds > left {
			o.TimeoutSeconds = &left
		}
		l.opened = time.Now()
		w, err = l.client.watch(ctx, l.gvr, l.namespace, o, "")
		return err
	})
	return w, err
}

// untilAnswered calls fn until it succeeds, ctx ends, or it fails with an error that the reflector
// has to handle.
func (l *listWatch) untilAnswered(ctx context.Context, fn func(context.Context) error) error {
	for {
		if err := l.client.WaitAvailable(ctx); err != nil {
			return err
		}
		l.store.move()
		err := fn(ctx)
		l.store.move()
		switch {
		case err == nil:
			l.lastError.Store(nil)
			l.failures = 0
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isExpired(err):
			return err
		}
		l.setError(l.client.explain(err))
		if err := l.pause(ctx, &l.failures, err); err != nil {
			return err
		}
	}
}

// pause waits 1, 2, 4 ... 20 s by the number of failures, which it counts, up to a tenth
// longer, or as long as err asks for.
func (l *listWatch) pause(ctx context.Context, failures *int, err error) error {
	wait := min(informerFirstPause<<min(*failures, 10), informerLastPause)
	*failures++
	if after, ok := RetryAfter(err); ok {
		wait = max(wait, after)
	}
	return Sleep(ctx, wait+rand.N(wait/10+1))
}
