package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// How an Informer lists and watches servers that fail, refuse or mislead. client-go's
// reflector relies on three properties of a server that others may not have:
//
//   - It ends the initial events with a bookmark. A server that ignores
//     sendInitialEvents never does, and the reflector would wait forever. The guard
//     waits for a bounded time and uses plain lists for an hour.
//   - It ends a watch by timeoutSeconds. The guard ends it a little later.
//   - It misses nothing. A watch that has lost events looks like a quiet one, so a full
//     list is compared with the cache from time to time (relist.go).

const (
	// listTimeout is the deadline of one page of a list. It is longer than
	// that of other calls: lists are large, links are slow, no lease hangs on it.
	listTimeout = 60 * time.Second
	// initialSilence is how long initial events may pause, initialGrace plus
	// initialPerEvent for each of them how long they may take in all.
	initialSilence  = 10 * time.Second
	initialGrace    = 30 * time.Second
	initialPerEvent = 10 * time.Millisecond
	// refusalHolds is how long a server is not asked for initial events again.
	refusalHolds = time.Hour
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

// errNoInitialEvents makes the reflector use a list.
var errNoInitialEvents = apierrors.NewBadRequest("the server does not send the initial events of a watch")

// errEnded is for calls after the end of Run.
var errEnded = errors.New("the informer has ended")

// isRefusal reports whether a server rejects a watch with initial events for good.
func isRefusal(err error) bool {
	status := statusOf(err)
	if status == nil || isExpired(err) {
		return false
	}
	switch status.Code {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}

// judgeInitial decides whether an error of a watch with initial events leads to a list,
// which may be allowed where a watch is not.
func (i *Informer) judgeInitial(err error) error {
	status := statusOf(err)
	switch {
	case status == nil, status.Code >= 500, status.Code == http.StatusUnauthorized,
		status.Code == http.StatusRequestTimeout, status.Code == http.StatusTooManyRequests:
		if !isRefusal(err) {
			return err
		}
	}
	if isRefusal(err) {
		i.refusedAt.Store(time.Now().UnixNano())
	}
	return final{err}
}

// isExpired reports whether a resource version is too old, or newer than the server
// knows: the reflector then starts again.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func (i *Informer) refusesInitial() bool {
	at := i.refusedAt.Load()
	return at != 0 && time.Since(time.Unix(0, at)) < refusalHolds
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
			i.fresh.Store(true)
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

// run forwards events until the watch ends. initial reports that it begins with all
// objects; timeout is the timeoutSeconds of the request.
func (g *guardedWatch) run(initial bool, timeout *int64) {
	defer close(g.out)
	defer g.inner.Stop()
	start, added := time.Now(), 0
	defer func() { g.judge(time.Since(start)) }()
	var end, silence <-chan time.Time
	if timeout != nil {
		timer := time.NewTimer(time.Duration(*timeout)*time.Second + watchOvertime)
		defer timer.Stop()
		end = timer.C
	}
	quiet := time.NewTimer(initialSilence)
	defer quiet.Stop()
	if initial {
		silence = quiet.C
	}
	for {
		select {
		case <-g.stop:
			return
		case <-end:
			return
		case <-silence:
			g.refuse()
			return
		case <-g.informer.relist:
			g.sendStatus(errCacheDiffers)
			return
		case event, ok := <-g.inner.ResultChan():
			if !ok {
				if silence != nil { // a list is more likely to succeed now
					g.informer.failures.Add(1)
					g.sendStatus(errNoInitialEvents)
				}
				return
			}
			if event.Type == watch.Added {
				added++
			}
			switch {
			case silence == nil:
			case endsInitial(event):
				silence = nil
				g.informer.fresh.Store(false)
			case time.Since(start) > initialGrace+time.Duration(added)*initialPerEvent:
				g.refuse()
				return
			default:
				quiet.Reset(initialSilence)
			}
			if u, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Bookmark {
				event.Object = g.informer.cached(u, event.Type, silence != nil)
			}
			if !g.saw(event) {
				return
			}
			if !g.send(event) || event.Type == watch.Error {
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
		g.informer.fresh.Store(true)
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

// refuse turns a watch whose initial events do not end into a refusal.
func (g *guardedWatch) refuse() {
	g.informer.refusedAt.Store(time.Now().UnixNano())
	g.informer.client.shared.log.Debug("the server does not end the initial events; list instead",
		"resource", g.informer.gvr.Resource)
	g.sendStatus(errNoInitialEvents)
}

func (g *guardedWatch) sendStatus(err *apierrors.StatusError) {
	status := err.Status()
	g.send(watch.Event{Type: watch.Error, Object: &status})
}

func endsInitial(event watch.Event) bool {
	return event.Type == watch.Bookmark && annotation(event.Object, metav1.InitialEventsAnnotationKey) == "true"
}

func annotation(obj runtime.Object, key string) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetAnnotations()[key]
}
