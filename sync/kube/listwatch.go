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

// How an Informer talks to servers that fail, refuse or mislead. client-go's
// reflector relies on the server in three points where a foreign one may not
// be relied upon; each has a guard here:
//
//   - A server that does not know sendInitialEvents and ignores it sends no end
//     of the initial events, and the reflector waits for it for ever. The guard
//     waits for a bounded time and then takes a plain list, for an hour.
//   - A watch is to end by timeoutSeconds. The guard ends it a little later.
//   - A watch that has missed something is as quiet as one that has not. A full
//     list now and then is compared with the picture (compare.go).

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
	// that does not answer at all are common to all (health).
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

// errDiffers makes the reflector make the picture anew.
var errDiffers = apierrors.NewResourceExpired("the picture differs from a full list")

// errNoInitialEvents makes the reflector take a list.
var errNoInitialEvents = apierrors.NewBadRequest("the server does not send the initial events of a watch")

// errEnded is what calls get that come after the end of Run.
var errEnded = errors.New("the informer has ended")

// isRefusal says that a server answered a watch with initial events by a
// status that speaks of the request, not of the moment.
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

// judgeInitial decides whether an error of a watch with initial events leads
// to a list, which may be allowed where a watch is not.
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

// isExpired says that a resource version is too old, or newer than the server
// knows: the reflector then starts afresh.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func (i *Informer) refusesInitial() bool {
	at := i.refusedAt.Load()
	return at != 0 && time.Since(time.Unix(0, at)) < refusalHolds
}

// untilAnswered calls fn until it succeeds, ctx ends, or it fails in a way
// that the reflector has to know of. A signal on relist, which may be nil, ends
// it like an expired version.
func (i *Informer) untilAnswered(ctx context.Context, relist <-chan struct{}, fn func(context.Context) error) error {
	for {
		if err := i.client.shared.health.wait(ctx); err != nil {
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
		i.note(i.client.explain(err))
		i.failures.Add(1)
		if err := i.pause(ctx, relist, err); err != nil {
			return err
		}
	}
}

// pause waits 1, 2, 4 ... 20 s, as many failures there were, up to a tenth
// longer, or what the server asked for in err.
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
		return errDiffers
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// guarded passes on the events of a watch and ends it when it should.
type guarded struct {
	informer *Informer
	inner    watch.Interface
	out      chan watch.Event // closed by run
	stop     chan struct{}    // closed by Stop
	once     sync.Once
}

// ResultChan implements watch.Interface.
func (g *guarded) ResultChan() <-chan watch.Event { return g.out }

// Stop implements watch.Interface.
func (g *guarded) Stop() { g.once.Do(func() { close(g.stop) }) }

// run passes events on until the watch ends. initial says that it begins with
// all objects; timeout is what was agreed with the server, in seconds.
func (g *guarded) run(initial bool, timeout *int64) {
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
			g.sendStatus(errDiffers)
			return
		case event, ok := <-g.inner.ResultChan():
			if !ok {
				if silence != nil { // a list is the surer way now
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

// judge counts a watch by how long it lasted: a server that ends every watch at
// once is asked less and less often. The reflector takes a short one for the
// sign of a bad version and lists all anew; so one that only broke is made
// longer here, unless it happens again and again.
func (g *guarded) judge(lasted time.Duration) {
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

// saw keeps the signs of life and the errors of the server. false means that
// the stream broke on its way: the reflector is not told, which would make it
// list all anew, but goes on from the last version in a new watch.
func (g *guarded) saw(event watch.Event) bool {
	if event.Type != watch.Error {
		g.informer.alive()
		return true
	}
	err := apierrors.FromObject(event.Object)
	if isExpired(err) {
		g.informer.fresh.Store(true)
		return true
	}
	g.informer.note(err)
	g.informer.failures.Add(1)
	return !apierrors.HasStatusCause(err, brokenStream)
}

// send passes an event on; false means that nobody wants it any more.
func (g *guarded) send(event watch.Event) bool {
	select {
	case g.out <- event:
		return true
	case <-g.stop:
		return false
	}
}

// refuse turns a watch whose initial events do not end into a refusal.
func (g *guarded) refuse() {
	g.informer.refusedAt.Store(time.Now().UnixNano())
	g.informer.client.shared.log.Debug("the server sends no end of the initial events; take a list",
		"resource", g.informer.gvr.Resource)
	g.sendStatus(errNoInitialEvents)
}

func (g *guarded) sendStatus(err *apierrors.StatusError) {
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
