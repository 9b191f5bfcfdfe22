package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// listWatch is how the reflector of an Informer lists and watches servers that fail,
// refuse or mislead. client-go's reflector relies on two properties of a server that
// others may not have:
//
//   - It ends a watch by timeoutSeconds. guardedWatch ends it a little later.
//   - It misses nothing. A watch that has lost events looks like a quiet one, so a full
//     list is compared with the cache from time to time (relist.go).
type listWatch struct{ *Informer }

const (
	// listTimeout is the deadline of one page of a list. It is longer than
	// that of other calls: lists are large, links are slow, no lease hangs on it.
	listTimeout = 60 * time.Second
	// watchOvertime is how much longer than agreed a watch may last.
	watchOvertime = 30 * time.Second

	// The pauses of one Informer after errors in a row; those of a server
	// that does not answer at all are common to all (availability).
	informerFirstPause = time.Second
	informerLastPause  = 20 * time.Second
	// steadyAfter is how long a watch must last to count as a success.
	steadyAfter = 30 * time.Second
	// shortWatch is how long it must last not to count as a failure; the
	// reflector has the same limit. mostShort of them in a row are excused.
	shortWatch = time.Second
	mostShort  = 3
)

// brokenStream is client-go's mark of errors that arose on this side of a watch.
const brokenStream metav1.CauseType = "ClientWatchDecoding"

// errCacheDiffers makes the reflector list again.
var errCacheDiffers = apierrors.NewResourceExpired("the cache differs from a full list")

// errEnded is for calls after the end of Run.
var errEnded = errors.New("the informer has ended")

// isExpired reports whether a resource version is too old, or newer than the server
// knows: the reflector then starts again.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// IsWatchListSemanticsUnSupported makes the reflector list before it watches. A watch
// with initial events would be one request, but a server that ignores the parameter never
// marks their end, and the reflector keeps all objects a second time while they come.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (l listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher.
func (l listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWatcherWithContext. It returns only errors that
// the reflector can handle, and waits and retries on all others: client-go's own retries
// do not know of the other informers. It always reads what is stored now, page by page,
// because the cache of a server answers with all objects at once.
func (l listWatch) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	if !l.begin() {
		return nil, errEnded
	}
	defer l.running.Done()
	var items []*cached
	version, err := l.pages(ctx, l.pageUntilAnswered, func(u *unstructured.Unstructured) { items = append(items, l.cached(u)) })
	if err != nil {
		return nil, err
	}
	return &cachedList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: items}, nil
}

// pageUntilAnswered is untilAnswered for a page of a list.
func (l listWatch) pageUntilAnswered(ctx context.Context, fn func(context.Context) error) error {
	err := l.untilAnswered(ctx, nil, fn)
	if err == nil {
		l.clearError()
		l.failures.Store(0)
	}
	return err
}

// pages calls each for every object of a full list, which it reads page by page with
// retry, and returns the version of the list.
func (i *Informer) pages(ctx context.Context, retry func(context.Context, func(context.Context) error) error,
	each func(*unstructured.Unstructured)) (string, error) {
	o := metav1.ListOptions{LabelSelector: i.options.LabelSelector, Limit: listPage}
	for {
		var page *unstructured.UnstructuredList
		err := retry(ctx, func(ctx context.Context) (err error) {
			page, err = i.client.Resource(i.gvr).Namespace(i.namespace).List(withTimeout(ctx, listTimeout), o)
			return err
		})
		if err != nil {
			return "", err
		}
		for n := range page.Items {
			each(&page.Items[n])
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return page.GetResourceVersion(), nil
		}
	}
}

// WatchWithContext implements cache.ListerWatcherWithContext in the same way.
func (l listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !l.begin() {
		return nil, errEnded
	}
	defer l.running.Done()
	o.LabelSelector = l.options.LabelSelector
	if l.failures.Load() > 0 { // the last stream broke
		if err := l.pause(ctx, l.relist, nil); err != nil {
			return nil, err
		}
	}
	var w watch.Interface
	err := l.untilAnswered(ctx, l.relist, func(ctx context.Context) (err error) {
		note := new(call)
		w, err = l.client.Resource(l.gvr).Namespace(l.namespace).Watch(withCall(ctx, note), o)
		if err == nil && note.err != nil { // client-go makes an empty watch of some errors
			w.Stop()
			err = note.err
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	l.clearError()
	l.running.Add(1) // not at zero: this call is counted
	g := &guardedWatch{informer: l.Informer, inner: w, out: make(chan watch.Event), stop: make(chan struct{})}
	go func() {
		defer l.running.Done()
		g.run(o.TimeoutSeconds)
	}()
	return g, nil
}

// untilAnswered calls fn until it succeeds, ctx ends, or it fails with an error that
// the reflector has to handle. A signal on relist, which may be nil, ends it like an
// expired version.
func (i *Informer) untilAnswered(ctx context.Context, relist <-chan struct{}, fn func(context.Context) error) error {
	for {
		if err := i.client.shared.availability.wait(ctx); err != nil {
			return err
		}
		err := fn(ctx)
		var last final
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &last):
			return last.error
		case isExpired(err):
			return err
		}
		i.setError(i.client.explain(err))
		i.failures.Add(1)
		if err := i.pause(ctx, relist, err); err != nil {
			return err
		}
	}
}

// pause waits 1, 2, 4 ... 20 s by the number of failures, up to a tenth longer, or as
// long as err asks for.
func (i *Informer) pause(ctx context.Context, relist <-chan struct{}, err error) error {
	n := max(i.failures.Load(), 1)
	wait := min(informerFirstPause<<min(n-1, 10), informerLastPause)
	if after, ok := RetryAfter(err); ok {
		wait = max(wait, after)
	}
	timer := time.NewTimer(wait + rand.N(wait/10+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-relist: // no watch is to be had, but a list showed changes
		return errCacheDiffers
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// guardedWatch forwards the events of a watch, with cached objects, and ends it when the
// server does not.
type guardedWatch struct {
	informer *Informer
	inner    watch.Interface
	out      chan watch.Event // closed by run
	stop     chan struct{}    // closed by Stop
	once     sync.Once
}

// ResultChan implements watch.Interface.
func (g *guardedWatch) ResultChan() <-chan watch.Event { return g.out }

// Stop implements watch.Interface.
func (g *guardedWatch) Stop() { g.once.Do(func() { close(g.stop) }) }

// run forwards events until the watch ends. timeout is the timeoutSeconds of the request.
func (g *guardedWatch) run(timeout *int64) {
	defer close(g.out)
	defer g.inner.Stop()
	start := time.Now()
	defer func() { g.judge(time.Since(start)) }()
	var end <-chan time.Time
	if timeout != nil {
		timer := time.NewTimer(time.Duration(*timeout)*time.Second + watchOvertime)
		defer timer.Stop()
		end = timer.C
	}
	for {
		select {
		case <-g.stop:
			return
		case <-end:
			return
		case <-g.informer.relist:
			status := errCacheDiffers.Status()
			g.send(watch.Event{Type: watch.Error, Object: &status})
			return
		case event, ok := <-g.inner.ResultChan():
			if !ok {
				return
			}
			if u, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Bookmark {
				event.Object = g.informer.cached(u)
			}
			if !g.saw(event) || !g.send(event) || event.Type == watch.Error {
				return
			}
		}
	}
}

// judge counts a watch by how long it lasted, so that a server that ends every watch at
// once is asked less and less often. The reflector takes a short watch for the sign of a
// bad version and lists everything again; so one that only broke is prolonged here,
// unless that happens repeatedly.
func (g *guardedWatch) judge(lasted time.Duration) {
	switch {
	case lasted > steadyAfter:
		g.informer.failures.Store(0)
	case lasted <= shortWatch && g.informer.failures.Add(1) <= mostShort:
		timer := time.NewTimer(shortWatch - lasted + time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-g.stop:
		}
	}
}

// saw records events and errors of the server. It returns false for a stream that broke
// on its way: the reflector does not see that error, which would make it list everything
// again, and continues from the last version in a new watch.
func (g *guardedWatch) saw(event watch.Event) bool {
	if event.Type != watch.Error {
		g.informer.clearError()
		return true
	}
	err := apierrors.FromObject(event.Object)
	if isExpired(err) {
		return true
	}
	g.informer.setError(err)
	g.informer.failures.Add(1)
	return !apierrors.HasStatusCause(err, brokenStream)
}

// send forwards an event; false means that the watch was stopped.
func (g *guardedWatch) send(event watch.Event) bool {
	select {
	case g.out <- event:
		return true
	case <-g.stop:
		return false
	}
}
