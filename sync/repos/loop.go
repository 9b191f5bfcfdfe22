package repos

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/worker"
	"limpet/sync/worker/sink"
)

const (
	firstRetry     = time.Second // the pause after a failure; each in a row doubles it, up to the resync
	quietConflicts = 5           // patches in a row that do not fit because of another writer, before it is logged
	// workers are the objects of a kind that are reconciled at once. Most of their time they wait for hosts, of which
	// one must not hold all of them: see netx.Turns.
	workers = 32
	perHost = 2 // objects of one host that are reconciled at once: what the mirrors ask a host at a time
	// firstBusy and maxBusy bound the random pause of an object whose host is busy: those
	// that waited must not all ask at once when it answers again.
	firstBusy, maxBusy = 250 * time.Millisecond, 30 * time.Second
)

var (
	// ErrBusy is returned by a reconcile for which there is no turn: its host is busy, or what works for all objects is.
	ErrBusy    = errors.New("its host is busy")
	errWait    = errors.New("waits for its turn")       // it keeps its place in the schedule
	errInvalid = errors.New("ignored until it changes") // it cannot be decoded
)

// UseFunc learns what an object uses besides itself, such as Secrets, before any of it is
// read, so that no change between the two is missed; obj is nil when the object is gone.
// Controllers are told of a change by Recheck. It must not block for long.
type UseFunc func(kind string, k Key, obj *unstructured.Unstructured)

// Result is when an object is reconciled again without any event, by the local clock; zero = never. With an error it is
// reconciled then at the latest.
type Result struct{ Next time.Time }

// Loop is the part of a controller that takes keys off a queue, has each reconciled by
// one worker at a time, and schedules the next time.
type Loop struct {
	kind      string
	reconcile func(ctx context.Context, k Key) (Result, error)
	meter     Meter
	logger    *slog.Logger
	available func(context.Context) error // blocks while the API is known to be unreachable; an error when ctx ends first
	use       UseFunc                     // nil = no call
	hosts     *netx.Turns

	failures, busy workqueue.TypedRateLimiter[Key]

	mu       sync.Mutex                            // guards what follows
	queue    workqueue.TypedDelayingInterface[Key] // nil while the loop does not run
	next     map[Key]time.Time                     // see Result
	rechecks map[Key]bool
}

// NewLoop returns a Loop that does not run yet. A failure is retried after first, and each in a row doubles that, up to
// most. silent reports whether a host did not answer last.
func NewLoop(
	client *kube.Client, kind string, reconcile func(context.Context, Key) (Result, error), first, most time.Duration,
	silent func(host string) bool, log *slog.Logger,
) *Loop {
	l := newLoop(kind, reconcile, most, log)
	l.failures, l.available = workqueue.NewTypedItemExponentialFailureRateLimiter[Key](first, most), client.WaitAvailable
	l.hosts = netx.NewTurns(workers, 2*perHost, silent) // those in line for the mirrors keep the host busy
	return l
}

func newLoop(kind string, reconcile func(context.Context, Key) (Result, error), resync time.Duration, log *slog.Logger) *Loop {
	return &Loop{
		kind:      kind,
		reconcile: reconcile,
		meter:     noMeter{},
		hosts:     netx.NewTurns(workers, perHost, nil),
		logger:    log,
		available: context.Cause,
		failures:  workqueue.NewTypedItemExponentialFailureRateLimiter[Key](min(firstRetry, resync), resync),
		busy:      workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstBusy, maxBusy),
		next:      map[Key]time.Time{},
		rechecks:  map[Key]bool{},
	}
}

// Work works until ctx ends, and returns when all workers have. It begins with all keys, which are asked for when Wake has
// effect already: an object that comes meanwhile is in one of the two.
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
		if l.available(ctx) == nil && ctx.Err() == nil {
			l.runOnce(ctx, k)
		}
		queue.Done(k)
	}
}

// runOnce reconciles one object and schedules its next time.
func (l *Loop) runOnce(ctx context.Context, k Key) {
	began := time.Now()
	result, err := l.reconcile(ctx, k)
	l.meter.Worked(time.Since(began))
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, errWait):
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
	case errors.Is(err, errInvalid):
		l.logger.Warn("cannot decode "+l.kind, "name", k.Name, "namespace", k.Namespace, "err", err)
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
		if !errors.Is(err, errConflict) || l.failures.NumRequeues(k) > quietConflicts {
			l.logger.Warn("cannot reconcile "+l.kind, "name", k.Name, "namespace", k.Namespace, "err", err, "retry_in", pause)
		}
	}
}

// Enter reserves the host of a URL for one object; leave must follow. The error is
// ErrBusy. An address without a host is refused before any request.
func (l *Loop) Enter(url auth.Address) (leave func(), err error) {
	leave, ok := l.hosts.Enter(url.HostPort())
	if !ok {
		return nil, ErrBusy
	}
	return leave, nil
}

// uses declares what an object uses; nil is for one that is gone.
func (l *Loop) uses(k Key, obj *unstructured.Unstructured) {
	if l.use != nil {
		l.use(l.kind, k, obj)
	}
	if obj == nil {
		l.takeRecheck(k)
	}
}

// Recheck has the health of an object checked now, before its time: what it uses, such as
// its credentials, has changed, or the cause of its failure may be over. It never blocks.
func (l *Loop) Recheck(namespace, name string) {
	l.wantRecheck(Key{namespace, name})
	l.Wake(namespace, name)
}

// wantRecheck notes a recheck for the next reconcile that comes so far.
func (l *Loop) wantRecheck(k Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rechecks[k] = true
}

// takeRecheck takes the recheck of an object, before anything is read of what it uses: a
// later change asks for another one.
func (l *Loop) takeRecheck(k Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := l.rechecks[k]
	delete(l.rechecks, k)
	return wanted
}

// Uses are what the objects of an agent use: what objects name, and the files of the rules of its configuration.
type Uses struct {
	Watcher  *dependency.Watcher
	Rules    *auth.List[auth.Rule]
	Policies *auth.List[auth.VerificationPolicy]
	Sealed   func(secret string) bool // see dependency.Reader: these change with their object
}

// Use is a UseFunc.
func (d Uses) Use(kind string, k Key, obj *unstructured.Unstructured) {
	user := dependency.Ref{Kind: kind, Namespace: k.Namespace, Name: k.Name}
	if obj == nil {
		d.Watcher.Use(user)
		return
	}
	refs := slices.DeleteFunc(dependency.Of(obj), func(r dependency.Ref) bool {
		return d.Sealed != nil && r.Kind == dependency.Secret && d.Sealed(r.Name)
	})
	for _, path := range d.ruleFiles(obj) {
		refs = append(refs, dependency.Ref{Kind: dependency.Path, Name: path})
	}
	d.Watcher.Use(user, refs...)
}

// ruleFiles returns the files of the rules that give a Repository its credentials and signers.
func (d Uses) ruleFiles(u *unstructured.Unstructured) (files []string) {
	rules, policies := d.Rules.Get(), d.Policies.Get()
	if len(rules)+len(policies) == 0 {
		return nil
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return nil
	}
	urls := worker.URLs(repo)
	for _, rule := range auth.PoliciesFor(policies, u.GetNamespace(), u.GetName(), urls...) {
		files = append(files, rule.Paths()...)
	}
	for _, url := range urls {
		files = append(files, auth.RuleFiles(rules, url)...)
	}
	return files
}

// A thousand Repositories of one interval must not be checked in the same second, also not after a network that was
// away for all of them has come back. So each has a slot of its own within the interval, which follows from its UID.

// fraction returns where in a period the object of that UID has its slot: 0 to 1, the same in every process.
func fraction(uid string) float64 {
	sum := sha256.Sum256([]byte(uid))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// slot returns the first slot at or after from.
func slot(uid string, period time.Duration, from time.Time) time.Time {
	offset := time.Duration(fraction(uid) * float64(period))
	since := time.Duration(from.UnixNano()-int64(offset)) % period
	if since < 0 {
		since += period
	}
	if since == 0 {
		return from
	}
	return from.Add(period - since)
}

// spreadOver is how many Repositories are worth a whole interval to spread what became
// due while no controller ran. One on its own is checked within a thousandth.
const spreadOver = 1000

// start is when a controller began and how many Repositories there were then.
type start struct {
	at    time.Time
	count int
}

// earliest returns the earliest time at which this process reconciles a Repository for no other reason than the time.
func (s start) earliest(uid string, interval time.Duration) time.Time {
	window := interval * time.Duration(min(s.count, spreadOver)) / spreadOver
	return s.at.Add(time.Duration(fraction(uid) * float64(window)))
}

// slotAfter returns when the remote is asked next, after it was asked last: at the first slot after
// three quarters of the interval, so that a pull of up to a quarter of it leaves the next slot in
// place and a longer one skips it. What became due before the controller began is spread from
// there. Grafana pauses for the interval less 1 s, and then until its next resync.
func slotAfter(last time.Time, uid string, interval time.Duration, s start) time.Time {
	at := slot(uid, interval, last.Add(interval*3/4))
	if at.Before(s.at) {
		return s.earliest(uid, interval)
	}
	return at
}
