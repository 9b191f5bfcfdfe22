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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// relistEvery is how often an Informer compares its picture with a full list,
// whatever the watch says: a watch can be silent or lose events behind proxies
// and several servers, and nothing in it tells.
const relistEvery = 10 * time.Minute

// listPage is how many objects a list asks for at a time.
const listPage = 500

// Handler receives the changes of an Informer, in order, one at a time, from
// the goroutine that reads the watch. Functions may be nil. They must be quick,
// must not change the objects, and must not call OnEvent.
type Handler struct {
	Add    func(obj *unstructured.Unstructured)
	Update func(old, new *unstructured.Unstructured)
	// Delete may receive an older state of the object than its last one, when
	// the deletion itself was not seen.
	Delete func(obj *unstructured.Unstructured)
	// Any is called at every change, before the others, and costs no object.
	Any func()
	// Listing is called with true before the changes that a list has brought and
	// with false after them. They come in no order, while those of the watch come
	// in that of the server.
	Listing func(on bool)
}

func (h Handler) listing(on bool) {
	if h.Listing != nil {
		h.Listing(on)
	}
}

func (h Handler) any() {
	if h.Any != nil {
		h.Any()
	}
}

func (h Handler) added(s Object) {
	h.any()
	if h.Add != nil {
		h.Add(s.Unstructured())
	}
}

func (h Handler) updated(old, s Object) {
	h.any()
	if h.Update != nil {
		h.Update(old.Unstructured(), s.Unstructured())
	}
}

func (h Handler) deleted(s Object) {
	h.any()
	if h.Delete != nil {
		h.Delete(s.Unstructured())
	}
}

// InformerOptions narrow an Informer.
type InformerOptions struct {
	LabelSelector string
	// Compact keeps some hundred bytes of each object instead of some thousand.
	// Get and Handlers then make an object anew each time.
	Compact bool
	// Seen is shown each object as the server has sent it, with its managedFields,
	// before the picture has it without them. It must be quick and safe for
	// concurrent use, and must not change or keep the object. An object may be shown
	// again, and an old state after a new one. nil = nobody.
	Seen func(obj *unstructured.Unstructured)
}

// Informer is a local picture of one resource, kept by a watch. It never gives
// up: errors are kept for LastError and tried again.
type Informer struct {
	client    *Client
	gvr       schema.GroupVersionResource
	namespace string
	options   InformerOptions
	relists   time.Duration // relistEvery
	picture   *picture
	reflector *cache.Reflector

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
	i := &Informer{client: c, gvr: gvr, namespace: namespace, options: o, relists: relistEvery, relist: make(chan struct{}, 1),
		picture: newPicture(o.Compact)}
	i.picture.seen = o.Seen
	i.reflector = cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: i.list, WatchFuncWithContext: i.watch}, nil, i.picture,
		cache.ReflectorOptions{Name: gvr.String(), TypeDescription: gvr.String()})
	return i
}

// AddHandler adds a handler; before Run or later, in which case it first receives
// the picture as it is, as Add calls.
func (i *Informer) AddHandler(h Handler) { i.picture.join(h) }

// How long an Informer rests before it makes its picture anew. Source: the
// reflector of client-go, whose own loop would log what is kept for LastError.
var relistPause = wait.Backoff{Duration: 800 * time.Millisecond, Cap: 30 * time.Second, Steps: 38, Factor: 2, Jitter: 1}

const relistPauseReset = 2 * time.Minute

// Run keeps the picture until ctx ends, and returns nil then, after all
// handlers have returned. It may be called once.
func (i *Informer) Run(ctx context.Context) error {
	if i.started.Swap(true) {
		return fmt.Errorf("informer of %s runs already or has ended", i.gvr.Resource)
	}
	i.running.Go(func() { i.compareEvery(ctx) })
	_ = relistPause.DelayWithReset(clock.RealClock{}, relistPauseReset).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		i.note(i.reflector.ListAndWatchWithContext(ctx))
		return false, nil
	})
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
func (i *Informer) HasSynced() bool {
	select {
	case <-i.picture.synced:
		return true
	default:
		return false
	}
}

// WaitSynced blocks until HasSynced. When ctx ends first, the error holds its
// cause and the last error of the server.
func (i *Informer) WaitSynced(ctx context.Context) error {
	select {
	case <-i.picture.synced:
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
	s, ok := i.Lookup(namespace, name)
	if !ok {
		return nil, false
	}
	return s.Unstructured(), true
}

// Lookup returns what is known of one object.
func (i *Informer) Lookup(namespace, name string) (Object, bool) {
	return i.picture.get(objectKey(namespace, name))
}

// Objects returns what is known of all objects, in no order.
func (i *Informer) Objects() []Object { return i.picture.all() }

// List returns all objects of the picture, in no order. They must not be
// changed. It is for resources with few objects; see Objects.
func (i *Informer) List() []*unstructured.Unstructured {
	all := i.picture.all()
	list := make([]*unstructured.Unstructured, len(all))
	for n, s := range all {
		list[n] = s.Unstructured()
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

// alive notes a sign of life: an event, a bookmark, a list.
func (i *Informer) alive() { i.lastError.Store(nil) }

// note keeps an error for LastError. The end of the context is none, and
// neither is an expired version, which leads to a new list.
func (i *Informer) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) || isExpired(err) {
		return
	}
	err = text.RedactError(err)
	i.lastError.Store(&err)
}

// list implements the list of the reflector. It returns errors only that the
// reflector has an answer to, and waits and repeats on all others: client-go's
// own repetitions know nothing of the other informers. It always reads what is
// stored now, page by page: a server's cache, which the reflector would rather
// have, answers all objects at once.
func (i *Informer) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	if !i.begin() {
		return nil, errEnded
	}
	defer i.running.Done()
	o := metav1.ListOptions{LabelSelector: i.options.LabelSelector, Limit: listPage}
	next := i.picture.newDraft()
	for {
		var page *unstructured.UnstructuredList
		err := i.untilAnswered(ctx, nil, func(ctx context.Context) (err error) {
			page, err = i.client.Resource(i.gvr).Namespace(i.namespace).List(withTimeout(ctx, listTimeout), o)
			return err
		})
		if err != nil {
			return nil, err
		}
		i.alive()
		i.failures.Store(0)
		for n := range page.Items {
			next.album.put(i.picture.hold(&page.Items[n]).obj)
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			i.fresh.Store(false)
			return &draftList{ListMeta: metav1.ListMeta{ResourceVersion: page.GetResourceVersion()}, Items: []*draft{next}}, nil
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
