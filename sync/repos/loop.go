package repos

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Dependencies learns what an object uses besides itself, such as Secrets, before any of
// it is read, so that no change between the two is missed; obj is nil when the object is
// gone. Controllers are told of a change by Renewed. It must not block for long.
type Dependencies interface {
	Use(kind string, k Key, obj *unstructured.Unstructured)
}

// Result is when an object is reconciled again without any event, by the local clock;
// zero = never.
type Result struct{ Next time.Time }

// loop is the part of a controller that takes keys off a queue, has each reconciled by
// one worker at a time, and schedules the next time.
type loop struct {
	kind         string
	reconcile    func(ctx context.Context, k Key) (Result, error)
	resync       time.Duration // pause after a failure
	meter        Meter
	log          *slog.Logger
	available    func(context.Context) error // blocks while the API is known to be away; an error when ctx ends first
	record       func(k Key, level, text string)
	dependencies Dependencies // nil = none
	limiter      hostLimiter

	mu       sync.Mutex                            // guards what follows
	queue    workqueue.TypedDelayingInterface[Key] // nil while the loop does not run
	next     map[Key]time.Time                     // see Result
	failures map[Key]int                           // in a row
	invalid  map[Key]string                        // versions of objects that cannot be decoded
	rechecks map[Key]recheck
}

func newLoop(kind string, reconcile func(context.Context, Key) (Result, error), resync time.Duration, log *slog.Logger) *loop {
	l := &loop{
		kind:      kind,
		reconcile: reconcile,
		resync:    resync,
		meter:     noMeter{},
		log:       log,
		available: context.Cause,
		record:    func(Key, string, string) {},
		next:      map[Key]time.Time{},
		failures:  map[Key]int{},
		invalid:   map[Key]string{},
		rechecks:  map[Key]recheck{},
	}
	l.limiter.hosts, l.limiter.call = map[string]*hostLine{}, l.set
	return l
}

// run works until ctx ends, and returns when all workers have. It begins with all keys
// and with nothing from an earlier run.
func (l *loop) run(ctx context.Context, workers int, keys func() []Key) error {
	queue := workqueue.NewTypedDelayingQueue[Key]()
	l.mu.Lock()
	l.next, l.failures, l.invalid, l.queue = map[Key]time.Time{}, map[Key]int{}, map[Key]string{}, queue
	l.mu.Unlock()
	for _, k := range keys() {
		queue.Add(k)
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { l.work(ctx, queue) })
	}
	<-ctx.Done()
	l.mu.Lock()
	l.queue = nil
	l.mu.Unlock()
	queue.ShutDown()
	all.Wait()
	return nil
}

// Wake has an object reconciled now, because something that it depends on has changed. It
// never blocks. While the loop does not run it does nothing: a run begins with all
// objects.
func (l *loop) Wake(namespace, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil {
		l.queue.Add(Key{namespace, name})
	}
}

// Next returns when an object is reconciled without any event; zero = not known, or now.
func (l *loop) Next(namespace, name string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.next[Key{namespace, name}]; at.After(time.Now()) {
		return at
	}
	return time.Time{}
}

// set schedules an object; the zero time is never. A time before, if it was earlier, has
// the object reconciled once more, which finds nothing due.
func (l *loop) set(k Key, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.IsZero() {
		delete(l.next, k)
		return
	}
	l.next[k] = at
	if l.queue != nil {
		l.queue.AddAfter(k, time.Until(at))
	}
}

func (l *loop) work(ctx context.Context, queue workqueue.TypedInterface[Key]) {
	for {
		k, over := queue.Get()
		if over {
			return
		}
		if l.available(ctx) == nil && ctx.Err() == nil {
			l.runOnce(ctx, k)
		}
		queue.Done(k)
	}
}

const (
	// maxRetries is how often something is retried that failed because a service was
	// away, before it pauses like any other failure. Source: Grafana.
	maxRetries = 3
	// firstRetry is the pause before the second try; the next is twice as long.
	firstRetry = 2 * time.Second
	// conflictPause is the pause after a patch that did not fit any more, and
	// maxConflicts how often in a row that may be because of another writer. Beyond that
	// the server has another reason, which a person has to know of.
	conflictPause = time.Second
	maxConflicts  = 10
)

// errWait says that an object keeps its place in the schedule.
var errWait = errors.New("waits for its turn")

// invalidError says that an object cannot be decoded. That lasts until it is another
// version, so it is reported once for each, and not retried.
type invalidError struct {
	version string
	err     error
}

func (u *invalidError) Error() string { return u.err.Error() }
func (u *invalidError) Unwrap() error { return u.err }

// runOnce reconciles one object and schedules its next time.
func (l *loop) runOnce(ctx context.Context, k Key) {
	began := time.Now()
	result, err := l.reconcile(ctx, k)
	l.meter.Worked(time.Since(began))
	switch {
	case ctx.Err() != nil || errors.Is(err, errWait):
		return
	case errors.Is(err, errBusy):
		l.set(k, time.Now().Add(hostRetry))
		return
	case err == nil:
		l.succeeded(k)
		l.set(k, result.Next)
		return
	}
	if invalid, is := errors.AsType[*invalidError](err); is {
		l.reportInvalid(k, invalid)
		l.set(k, time.Time{})
		return
	}
	n := l.failed(k)
	if errors.Is(err, errConflict) && n <= maxConflicts {
		// The watch shows what has come between, or shows it soon.
		l.set(k, time.Now().Add(conflictPause))
		return
	}
	pause := l.resync
	if isUnavailable(err) && n < maxRetries {
		pause = firstRetry << (n - 1)
	}
	l.set(k, time.Now().Add(pause))
	l.log.Warn("cannot reconcile "+l.kind, "name", k.Name, "namespace", k.Namespace, "err", err, "retry_in", pause)
}

// isUnavailable reports whether an error comes from a service that is away.
func isUnavailable(err error) bool {
	_, is := errors.AsType[*kube.UnavailableError](kube.AsUnavailable(err))
	return is
}

func (l *loop) succeeded(k Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failures, k)
	delete(l.invalid, k)
}

// failed returns the number of failures in a row.
func (l *loop) failed(k Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures[k]++
	return l.failures[k]
}

// reportInvalid reports an object that cannot be decoded, once for each version of it.
func (l *loop) reportInvalid(k Key, e *invalidError) {
	l.mu.Lock()
	reported := l.invalid[k] == e.version
	l.invalid[k] = e.version
	l.mu.Unlock()
	if !reported {
		l.log.Warn("cannot decode "+l.kind+", ignored until it changes", "name", k.Name, "namespace", k.Namespace, "err", e.err)
		l.record(k, "warn", "ignored until it changes: "+e.err.Error())
	}
}

// uses declares what an object uses.
func (l *loop) uses(k Key, obj *unstructured.Unstructured) {
	if l.dependencies != nil {
		l.dependencies.Use(l.kind, k, obj)
	}
}

// unused declares that an object uses nothing any more.
func (l *loop) unused(k Key) {
	l.uses(k, nil)
	l.takeRecheck(k)
}

// recheck is a wish to check the health of an object before its time.
type recheck int

const (
	recheckUnhealthy recheck = iota + 1 // the cause of its failure may be over
	recheckAlways                       // what it works with now may be wrong
)

// due reports whether an object with this health is to be checked.
func (r recheck) due(h api.HealthState) bool {
	return r == recheckAlways || r == recheckUnhealthy && !h.Healthy
}

// Recheck has the health of an object checked now if it is not healthy: the cause may be
// over, such as missing credentials. It never blocks.
func (l *loop) Recheck(namespace, name string) {
	l.wantRecheck(Key{namespace, name}, recheckUnhealthy)
	l.Wake(namespace, name)
}

// Renewed has the health of an object checked now, also when it is healthy: what it uses,
// such as its credentials, has changed. It never blocks.
func (l *loop) Renewed(namespace, name string) {
	l.wantRecheck(Key{namespace, name}, recheckAlways)
	l.Wake(namespace, name)
}

// wantRecheck notes a recheck for the next reconcile that comes so far.
func (l *loop) wantRecheck(k Key, r recheck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r > l.rechecks[k] {
		l.rechecks[k] = r
	}
}

// takeRecheck takes the recheck of an object, before anything is read of what it uses: a
// later change asks for another one.
func (l *loop) takeRecheck(k Key) recheck {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rechecks[k]
	delete(l.rechecks, k)
	return r
}
