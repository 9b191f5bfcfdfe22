package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/lease"
	"limpet/sync/kube"
)

// store is the part of the state file that jobs need.
type store interface {
	PutClaim(ctx context.Context, k state.Claim) error
	Claim(ctx context.Context, uid string) (state.Claim, error)
	Claims(ctx context.Context) ([]state.Claim, error)
	PutMark(ctx context.Context, uid string, mark json.RawMessage) error
	DropClaim(ctx context.Context, uid string) error
	Complete(ctx context.Context, uid string, r state.Record) error
	EndClaim(ctx context.Context, uid, historicJob string, queue bool) error
	PutRecord(ctx context.Context, r state.Record) error
	PutQueued(ctx context.Context, r state.Record) error
	History(ctx context.Context, q state.Query) ([]state.Record, error)
	HistoryCount(ctx context.Context) (int, error)
	PruneHistory(ctx context.Context, before time.Time) (int, error)
	TrimHistory(ctx context.Context, maxRecords int) (int, error)
	TrimHistoryBytes(ctx context.Context, maxBytes int64) (int, error)
}

var _ store = (*state.Store)(nil)

// lister is the part of an informer that jobs need.
type lister interface {
	Get(namespace, name string) (*unstructured.Unstructured, bool)
	Objects() []kube.Object
	WaitSynced(ctx context.Context) error
	HasSynced() bool
}

var _ lister = (*kube.Informer)(nil)

// env is what every part of a Controller works with.
type env struct {
	o        Options
	server   server
	renewals server // over connections of its own
	store    store
	clock    clock
	events   *emitter
	claims   *claimTable
	life     context.Context // ends a grace period after Run was told to stop; set before anything runs
}

// outlive returns a context that goes on when ctx ends, at most as long as the agent.
func (e *env) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(e.life, func() { cancel(ErrShutdown) })
	return out, func() {
		stop()
		cancel(context.Canceled)
	}
}

// endClaim forgets the claim of a completed job. ours is false for a job that another agent ends too.
func (e *env) endClaim(ctx context.Context, uid, historicJob string, ours bool) error {
	err := e.store.EndClaim(ctx, uid, historicJob, ours && e.o.QueueHistory)
	if err == nil {
		e.queued(ours)
	}
	return err
}

// queued reports that the history queue has grown.
func (e *env) queued(ours bool) {
	if ours && e.o.QueueHistory {
		e.events.measure(RecordQueued{})
	}
}

// pass marks a failpoint of a job: for tests of this package by the hook of one controller, for
// those of the whole program by the failpoint.
func (e *env) pass(point string, job jobRef) {
	if e.o.hook != nil {
		e.o.hook(point, job)
	}
	_ = failpoint.Pass(point) // errors are for places that can fail
}

// serverClock is the time of the API server, as far as it is known.
type serverClock interface {
	// Now returns that time and how far off it may be, in either direction. ok is false until an
	// answer of the server has been seen.
	Now() (t time.Time, errBound time.Duration, ok bool)
	// Millis returns it in milliseconds, or an error when it may be off by more.
	Millis(maxError time.Duration) (int64, error)
}

var _ serverClock = (*kube.Clock)(nil)

// host is the machine that the agent runs on, as far as leases and claims depend on it. Pauses that
// decide nothing use package time.
type host interface {
	now() lease.Reading
	// after calls f when d has passed on the monotonic clock.
	after(d time.Duration, f func()) *time.Timer
	// token returns an unguessable text that comes only once.
	token() string
	// jitter returns d plus or minus a tenth, so that agents that were cut off together do not come
	// back together.
	jitter(d time.Duration) time.Duration
}

// realHost is the host of the process.
type realHost struct{}

func (realHost) now() lease.Reading                          { return lease.ReadingOf(time.Now()) }
func (realHost) after(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }
func (realHost) token() string                               { return rand.Text() }

func (realHost) jitter(d time.Duration) time.Duration {
	if d < 10 {
		return d
	}
	return d - d/10 + mathrand.N(d/5)
}

// clock is the time of the server and of the host.
type clock struct {
	server   serverClock
	host     host
	maxError time.Duration // of the server's time in a claim
}

// millis is the server's time for a claim; an error when it is not known well enough to claim.
func (c *clock) millis() (int64, error) { return c.server.Millis(c.maxError) }

// roughMillis is the server's time as far as it is known, and the local time where that may be it:
// the log has that too, and half a second between the two would be an error of the estimate. It is
// for records, never for decisions.
func (c *clock) roughMillis() int64 {
	wall := c.host.now().Wall
	if t, errBound, ok := c.server.Now(); ok && wall.Sub(t).Abs() > errBound {
		return t.UnixMilli()
	}
	return wall.UnixMilli()
}

// retryAfter is how long the server asked not to be called, and up to a tenth more: agents that got
// the same answer must not come back together.
func (c *clock) retryAfter(err error) time.Duration {
	after, ok := kube.RetryAfter(err)
	if !ok || after == 0 {
		return 0
	}
	return after + (c.host.jitter(after)-after*9/10)/2
}

// attemptDelay is the backoff of a job before the given attempt: none before the first, 5 s before
// the second, 20 s before the third, 80 s before the fourth, then 5 min. A job that kills its agent
// must not do so every few seconds.
func attemptDelay(attempt int) time.Duration {
	if attempt <= 1 {
		return 0
	}
	return min(5*time.Second<<(2*min(attempt-2, 3)), 5*time.Minute)
}

// wait returns at until (when timed), at a signal, or when ctx ends.
func wait(ctx context.Context, signal <-chan struct{}, until time.Time, timed bool) {
	var tick <-chan time.Time
	if timed {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
	case <-signal:
	case <-tick:
	}
}

// notify leaves one token in a channel of capacity 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// server is the part of an API server that jobs need. Every call has a deadline of its own and
// returns the errors of apimachinery.
type server interface {
	get(ctx context.Context, kind schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	// list calls each with every object that a label selector picks, some perhaps twice, and ends with
	// its error.
	list(ctx context.Context, kind schema.GroupVersionResource, namespace, selector string, each visit) error
	// putJob replaces the job; the object carries UID and resourceVersion.
	putJob(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error)
	archive(ctx context.Context, historic *unstructured.Unstructured) error
	// delete deletes an object under its UID and resourceVersion.
	delete(ctx context.Context, kind schema.GroupVersionResource, object *unstructured.Unstructured) error
}

type visit = func(object *unstructured.Unstructured) error

// claimedBefore is the selector of the claims that are older than a time in milliseconds.
func claimedBefore(millis int64) string { return api.LabelClaim + "<" + strconv.FormatInt(millis, 10) }

// archived reports whether there is a HistoricJob of a job.
func (e *env) archived(ctx context.Context, namespace, uid string) (found bool, err error) {
	err = e.server.list(ctx, api.HistoricJobs, namespace, api.LabelOriginalUID+"="+uid, func(*unstructured.Unstructured) error {
		found = true
		return nil
	})
	return found, err
}

// pageSize is how many objects a list asks for at a time. Source: Grafana's cleanup.
const pageSize = 100

// apiServer is the server behind a kube.Client.
type apiServer struct {
	client  *kube.Client
	timeout time.Duration // of one call
}

var _ server = apiServer{}

func (w apiServer) get(ctx context.Context, kind schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.client.Resource(kind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// list begins again, once, when the server has forgotten the list between two pages.
func (w apiServer) list(ctx context.Context, kind schema.GroupVersionResource, namespace, selector string, each visit) error {
	o, again := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}, true
	for {
		within, cancel := context.WithTimeout(ctx, w.timeout)
		page, err := w.client.Resource(kind).Namespace(namespace).List(within, o)
		cancel()
		if apierrors.IsResourceExpired(err) && o.Continue != "" && again {
			o.Continue, again = "", false
			continue
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := each(&page.Items[i]); err != nil {
				return err
			}
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

func (w apiServer) putJob(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if job.GetUID() == "" || job.GetResourceVersion() == "" {
		panic("jobs: internal error: unconditional write of a job")
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.client.Resource(api.Jobs).Namespace(job.GetNamespace()).Update(ctx, job, metav1.UpdateOptions{})
}

func (w apiServer) archive(ctx context.Context, historic *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	_, err := w.client.Resource(api.HistoricJobs).Namespace(historic.GetNamespace()).Create(ctx, historic, metav1.CreateOptions{})
	return err
}

func (w apiServer) delete(ctx context.Context, kind schema.GroupVersionResource, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	id, version := object.GetUID(), object.GetResourceVersion()
	return w.client.Resource(kind).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id, ResourceVersion: &version}})
}
