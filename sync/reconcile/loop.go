// Package reconcile is what controllers have in common: a Loop that takes keys off a queue and has
// each object reconciled, the steps of a reconcile, the slots in which objects of one interval are
// spread, and patches of an object.
//
// A handler of a watch wakes a key and does nothing else. A reconcile is a list of steps, each in a
// file of its name.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/worker/sink"
)

const (
	FirstRetry     = time.Second // the pause after a failure; each in a row doubles it
	quietConflicts = 5           // patches in a row that do not fit because of another writer, before it is logged
	// Workers is the number of objects of a kind that are reconciled at once. Most of their time they
	// wait for hosts, of which one must not hold all of them: see netx.Turns.
	Workers = 32
	// PerHost is the number of objects of one host that are reconciled at once: what the mirrors ask a
	// host at a time.
	PerHost = 2
	// firstBusy and maxBusy bound the random pause of an object whose host is busy: those that waited
	// must not all ask at once when it answers again.
	firstBusy, maxBusy = 250 * time.Millisecond, 30 * time.Second
)

// Errors of a reconcile that are no failures.
var (
	// ErrBusy: there is no turn for the object. Its host is busy, or what works for all objects is.
	ErrBusy = errors.New("its host is busy")
	// ErrWait: the object keeps its place in the schedule.
	ErrWait = errors.New("waits for its turn")
	// ErrInvalid: the object cannot be decoded. It is logged, and not tried again.
	ErrInvalid = errors.New("ignored until it changes")
)

// Key names an object.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// UseFunc learns what an object uses besides itself, such as Secrets, before any of it is read, so
// that no change between the two is missed; obj is nil when the object is gone. Changes come back
// by Recheck. It must not block for long.
type UseFunc func(kind string, k Key, obj *unstructured.Unstructured)

// Result is what a reconcile without an error has come to.
type Result struct {
	// Next is when the object is reconciled again without any event, by the local clock; zero = never.
	// With an error it is reconciled then at the latest.
	Next time.Time
	// Unready reports whether the object is not ready, for a reason that no backoff ends.
	Unready bool
	// Cache is the event of a cache that was asked, cache_hit or cache_miss; "" = there is none.
	Cache string
}

// Done is a reconcile that has ended.
type Done struct {
	Kind   string
	Key    Key
	Took   time.Duration
	Result Result
	Err    error
}

// Outcome returns the result in the words of controller-runtime.
func (d Done) Outcome() string {
	switch {
	case errors.Is(d.Err, ErrBusy), errors.Is(d.Err, ErrWait):
		return "requeue"
	case d.Err != nil:
		return "error"
	case !d.Result.Next.IsZero():
		return "requeue_after"
	}
	return "success"
}

// Options of a Loop. Kind, Reconcile, MaxRetry and Logger must be set.
type Options struct {
	Kind      string // for people
	Reconcile func(ctx context.Context, k Key) (Result, error)
	Client    *kube.Client // while its API is unreachable, keys wait; nil = they never do
	// A failure is retried after FirstRetry, and each in a row doubles that, up to MaxRetry;
	// FirstRetry 0 is the constant.
	FirstRetry, MaxRetry time.Duration
	Hosts                *netx.Turns // nil = PerHost turns for a host
	Uses                 UseFunc     // nil = no call
	Worked               func(Done)  // is called after each reconcile; nil = no call
	Logger               *slog.Logger
}

// Loop is the part of a controller that takes keys off a queue, has each reconciled by one worker
// at a time, and schedules the next time.
type Loop struct {
	o              Options
	failures, busy workqueue.TypedRateLimiter[Key]

	mu       sync.Mutex                            // guards what follows
	queue    workqueue.TypedDelayingInterface[Key] // nil while the loop does not run
	next     map[Key]time.Time                     // see Result
	rechecks map[Key]bool
}

// NewLoop returns a Loop that does not run yet.
func NewLoop(o Options) *Loop {
	o.FirstRetry = min(cmp.Or(o.FirstRetry, FirstRetry), o.MaxRetry)
	if o.Hosts == nil {
		o.Hosts = netx.NewTurns(Workers, PerHost, nil)
	}
	return &Loop{
		o:        o,
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[Key](o.FirstRetry, o.MaxRetry),
		busy:     workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstBusy, maxBusy),
		next:     map[Key]time.Time{},
		rechecks: map[Key]bool{},
	}
}

// Work works until ctx ends, and returns when all workers have. It begins with all keys, which are
// asked for when Wake has effect already: an object that comes meanwhile is in one of the two.
func (l *Loop) Work(ctx context.Context, keys func() []Key) error {
	queue := workqueue.NewTypedDelayingQueue[Key]()
	l.mu.Lock()
	l.next, l.queue = map[Key]time.Time{}, queue
	l.mu.Unlock()
	for _, k := range keys() {
		l.failures.Forget(k)
		queue.Add(k)
	}
	var all sync.WaitGroup
	for range Workers {
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

// Wake has an object reconciled now, because something that it depends on has changed. It never
// blocks. While the loop does not run it does nothing: a run begins with all objects.
func (l *Loop) Wake(namespace, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil {
		l.queue.Add(Key{namespace, name})
	}
}

// Next returns when an object is reconciled without any event; zero = not known, or now.
func (l *Loop) Next(namespace, name string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.next[Key{namespace, name}]; at.After(time.Now()) {
		return at
	}
	return time.Time{}
}

// Len returns the number of objects that are to be reconciled now and wait for a worker.
func (l *Loop) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return 0
	}
	return l.queue.Len()
}

// set schedules an object; the zero time is never. A time before, if it was earlier, has
// the object reconciled once more, which finds nothing due.
func (l *Loop) set(k Key, at time.Time) {
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

func (l *Loop) work(ctx context.Context, queue workqueue.TypedInterface[Key]) {
	for {
		k, over := queue.Get()
		if over {
			return
		}
		if l.available(ctx) {
			l.runOnce(ctx, k)
		}
		queue.Done(k)
	}
}

// available waits while the API is known to be unreachable. It reports false when ctx has ended.
func (l *Loop) available(ctx context.Context) bool {
	if l.o.Client != nil && l.o.Client.WaitAvailable(ctx) != nil {
		return false
	}
	return ctx.Err() == nil
}

// runOnce reconciles one object and schedules its next time.
func (l *Loop) runOnce(ctx context.Context, k Key) {
	began := time.Now()
	result, err := l.o.Reconcile(ctx, k)
	if l.o.Worked != nil {
		l.o.Worked(Done{l.o.Kind, k, time.Since(began), result, err})
	}
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, ErrWait):
		l.mu.Lock()
		at := l.next[k]
		l.mu.Unlock()
		l.set(k, at) // an earlier time of the queue stands for the later one too, and is over
		return
	case errors.Is(err, ErrBusy):
		l.set(k, time.Now().Add(rand.N(l.busy.When(k))))
		return
	}
	l.busy.Forget(k)
	switch {
	case err == nil:
		l.failures.Forget(k)
		l.set(k, result.Next)
	case errors.Is(err, ErrInvalid):
		l.o.Logger.Warn("cannot decode "+l.o.Kind, "name", k.Name, "namespace", k.Namespace, "err", err)
		l.set(k, time.Time{})
	default:
		pause := l.failures.When(k)
		if e, ok := errors.AsType[*sink.ExecError](err); ok {
			pause = cmp.Or(e.RetryAfter, pause)
		}
		if due := time.Until(result.Next); due > 0 {
			pause = min(pause, due)
		}
		if e, ok := errors.AsType[*git.Error](err); ok {
			pause = max(pause, e.RetryAfter)
		} else if e, ok := errors.AsType[*netx.Error](err); ok {
			pause = max(pause, e.RetryAfter)
		}
		l.set(k, time.Now().Add(pause))
		if !errors.Is(err, ErrConflict) || l.failures.NumRequeues(k) > quietConflicts {
			l.o.Logger.Warn("cannot reconcile "+l.o.Kind, "name", k.Name, "namespace", k.Namespace, "err", err, "retry_in", pause)
		}
	}
}

// Enter reserves the host of a URL for one object; leave must follow. The error is
// ErrBusy. An address without a host is refused before any request.
func (l *Loop) Enter(url auth.Address) (leave func(), err error) {
	leave, ok := l.o.Hosts.Enter(url.HostPort())
	if !ok {
		return nil, ErrBusy
	}
	return leave, nil
}

// Uses declares what an object uses; nil is for one that is gone.
func (l *Loop) Uses(k Key, obj *unstructured.Unstructured) {
	if l.o.Uses != nil {
		l.o.Uses(l.o.Kind, k, obj)
	}
	if obj == nil {
		l.TakeRecheck(k)
	}
}

// Recheck has the health of an object checked now, before its time: what it uses, such as
// its credentials, has changed, or the cause of its failure may be over. It never blocks.
func (l *Loop) Recheck(namespace, name string) {
	l.WantRecheck(Key{namespace, name})
	l.Wake(namespace, name)
}

// WantRecheck notes a recheck for the next reconcile that comes so far.
func (l *Loop) WantRecheck(k Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rechecks[k] = true
}

// TakeRecheck takes the recheck of an object, before anything is read of what it uses: a
// later change asks for another one.
func (l *Loop) TakeRecheck(k Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := l.rechecks[k]
	delete(l.rechecks, k)
	return wanted
}

// Event is a step of a controller that a person may want to know of.
type Event struct {
	At         time.Time
	Level      string // info, warn
	Namespace  string
	Repository string
	Text       string
}

// Step is a part of a reconcile of an attempt. It reads what the steps before it have found, and
// adds its own. It ends the reconcile when it is done or fails.
type Step[A any] func(ctx context.Context, a A) (done bool, err error)

// Run runs steps one after the other, until one of them ends the reconcile. It reports whether one
// was done.
func Run[A any](ctx context.Context, a A, steps []Step[A]) (done bool, err error) {
	for _, step := range steps {
		if done, err := step(ctx, a); done || err != nil {
			return done, err
		}
	}
	return false, nil
}
