package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"limpet/sync/text"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/failpoint"
	"limpet/sync/garbage"
	"limpet/sync/jobs/queue"
	"limpet/sync/netx"
)

// missingRepoGrace is how long a job waits for a repository that does not exist yet: both may have
// been applied together, in any order.
const missingRepoGrace = 2 * time.Second

// busyHost is how long a job waits whose host has enough of the drivers.
const busyHost = 2 * time.Second

// driver takes keys from the queue and does what there is to do: it settles the claims of this
// agent, or claims the job and runs it.
type driver struct {
	env       *env
	queue     *workQueue
	hosts     *netx.Turns
	drain     *drain
	admission *admission
	exclusion *exclusion
	delay     *queue.ClaimDelay
	claimer   *claimer
	recoverer *recoverer
	runner    *runner
	finisher  *finisher
}

type driverKey struct{}

// driverOf returns the driver of a context, see HeldBegan.
func driverOf(ctx context.Context) string {
	if driver, ok := ctx.Value(driverKey{}).(string); ok {
		return driver
	}
	return DriverCleanup
}

// Run takes keys until ctx ends. While the API is away it asks only as often as all others together
// may (await): it would be asked about a backlog key by key.
func (d *driver) Run(ctx context.Context, await func(context.Context) error) {
	for await(ctx) == nil {
		k, r, ok := d.queue.take(ctx)
		if !ok {
			return
		}
		done := garbage.Leave(garbage.Jobs)
		result := d.runOnce(ctx, k, r)
		done()
		d.queue.done(k, result)
		if result.After > 0 {
			d.delay.Reset(r)
		}
		d.drain.reportDrained()
	}
}

// runOnce looks at one key. It claims the version of the job that the watch has shown: the server
// refuses that when the watch is behind, and then the API is asked for the job.
func (d *driver) runOnce(ctx context.Context, k queue.Key, r queue.RepoKey) queue.Result {
	pending := d.env.claims.pendingOf(k)
	if len(pending) == 0 {
		seen, result := d.ready(k, r)
		if seen == nil {
			return result
		}
		if d.trusts(ctx, seen, r) {
			if result, behind := d.start(ctx, seen); !behind {
				return result
			}
			pending = d.env.claims.pendingOf(k) // the intent, when it could not be forgotten
		}
	}
	job, err := d.env.server.get(ctx, api.Jobs, k.Namespace, k.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return d.env.retryLater(err)
	}
	if err != nil {
		job = nil
	}
	if result, done := d.recoverer.settle(ctx, job, pending); done {
		return result
	}
	if job == nil || claimed(job) {
		return queue.Result{NotUrgent: true}
	}
	if now := repoOf(job); now != r {
		return queue.Result{Requeue: true, NotUrgent: true, Repo: &now}
	}
	if result, ended := d.recoverer.removeEnded(ctx, job); ended {
		return result
	}
	result, _ := d.start(ctx, job)
	return result
}

// trusts reports whether a job may be claimed as the watch shows it. It may show one for some time
// that has ended here, or whose name is that of a job of another repository now. And where the time
// is not known, an answer has it.
func (d *driver) trusts(ctx context.Context, seen *unstructured.Unstructured, r queue.RepoKey) bool {
	uid := api.Meta(seen, "uid")
	if _, err := d.env.clock.millis(); err != nil || d.env.claims.isKnown(uid) || repoOf(seen) != r {
		return false
	}
	ended, err := d.env.endedHere(ctx, uid)
	return err == nil && !ended
}

// retryLater asks for another look, not before the server wants it.
func (e *env) retryLater(err error) queue.Result {
	return queue.Result{Retry: true, After: e.clock.retryAfter(err)}
}

// ready returns, without asking the API, the job of a key as the watch shows it; nil and what becomes
// of the key when it is not to be looked at now: there is nothing to do, another agent works on the
// repository, or others come first.
func (d *driver) ready(k queue.Key, r queue.RepoKey) (*unstructured.Unstructured, queue.Result) {
	seen, skip := d.admission.skipFromCache(k)
	if skip {
		return nil, queue.Result{}
	}
	after := d.exclusion.occupied(r)
	if cancelReason(seen) != "" { // it is only to be ended: there is no work to exclude
		after = 0
	}
	if after <= 0 {
		after = d.delay.Remaining(r, time.Now())
	}
	if after > 0 {
		return nil, queue.Result{Requeue: true, RepoAfter: after, NotUrgent: true}
	}
	return seen, queue.Result{}
}

// start claims a job, if this agent is to run it, and runs it. behind reports that another version of
// the job than this one is stored, or none.
func (d *driver) start(ctx context.Context, job *unstructured.Unstructured) (result queue.Result, behind bool) {
	ref := refOf(job)
	now, err := d.env.clock.millis()
	if err != nil {
		d.env.events.once("clock", EventNote, jobRef{}, "no job is claimed: "+err.Error())
		return queue.Result{Retry: true}, false
	}
	if wait := notBefore(job) - now; wait > 0 && cancelReason(job) == "" {
		return queue.Result{Requeue: true, After: min(time.Duration(wait)*time.Millisecond, attemptDelay(99))}, false
	}
	repo, err := d.admission.repository(ctx, job)
	if err != nil {
		return d.env.retryLater(err), false
	}
	if repo == nil && ref.repository != "" && now-job.GetCreationTimestamp().UnixMilli() < missingRepoGrace.Milliseconds() {
		return queue.Result{Requeue: true, After: missingRepoGrace}, false
	}
	decided, err := d.admission.decide(ctx, job, repo)
	if err != nil {
		return d.env.retryLater(err), false
	}
	if decided.skip != "" && ctx.Err() != nil {
		return queue.Result{}, false // the worker was not ready because the agent stops
	}
	// A request of ours that may still arrive is settled even where the job is skipped: it is claimed
	// with the same token and released. Otherwise the intent would stay open as long as no agent runs
	// the job.
	_, open := d.env.claims.openIntent(ref.uid)
	if decided.skip != "" && !open {
		d.admission.skipped(job, decided)
		return queue.Result{}, false
	}
	d.env.pass(failpoint.Seen, ref)
	if d.drain.on() && !open {
		return queue.Result{Requeue: true, NotUrgent: len(d.env.claims.pendingOf(ref.Key)) == 0}, false
	}
	if host := hostOf(decided.task.Repository); host != "" && !open {
		leave, ok := d.hosts.Enter(host)
		if !ok {
			return queue.Result{Requeue: true, After: busyHost, NotUrgent: true}, false
		}
		defer leave()
	}
	// A claim that is under way when the agent is told to stop is brought to its end and released: an
	// open one would be left behind.
	claiming, end := d.env.outlive(ctx)
	defer end()
	h, result, err := d.claimer.claim(claiming, job, false)
	if err != nil && !stale(err) {
		d.env.events.once("claim "+ref.uid, EventNote, ref, "the job could not be claimed: "+err.Error())
		result = d.env.retryLater(err)
		result.Urgent = len(d.env.claims.pendingOf(ref.Key)) > 0
	}
	if h == nil {
		return result, stale(err)
	}
	defer h.drop()
	d.env.events.emit(EventClaimed, h.ref, "job claimed")
	switch {
	case ctx.Err() != nil:
		return d.finisher.release(h, "the agent stops"), false
	case decided.skip != "":
		return d.finisher.release(h, decided.skip), false
	case open && d.drain.on(): // now the earlier request cannot come to pass any more
		return d.finisher.release(h, "the agent drains"), false
	}
	if decided.end == nil {
		first, err := d.exclusion.rival(h, true)
		switch {
		case err != nil:
			return d.finisher.leaseLost(h), false
		case first != nil:
			if agentOf(first.owner) != "" {
				d.delay.Lost()
			}
			return d.finisher.yield(h, first), false
		}
		if slices.Contains(api.WriteActions, ref.action) {
			return d.runner.resume(ctx, h, job), false
		}
	}
	return d.runner.run(ctx, h, decided), false
}

// hostOf returns name and port of the host of a repository, "" for one on this host.
func hostOf(repo api.Repository) string {
	block := repo.Spec.Block()
	if block == nil {
		return ""
	}
	url, err := auth.ParseAddress(block.URL)
	if err != nil || url.Local() {
		return ""
	}
	return url.HostPort()
}

// An agent that drains ends what it has begun and claims nothing new. Draining is of the process:
// an agent that was forgotten in this state looks healthy and does nothing.
type drain struct {
	env   *env
	queue *workQueue

	mu       sync.Mutex // guards the fields below
	since    time.Time  // zero = the agent claims
	reported bool       // nothing of before runs any more, and that was reported
}

// set has the agent claim nothing new, or claim again. To set it twice changes nothing.
func (d *drain) set(on bool) {
	d.mu.Lock()
	same := on != d.since.IsZero()
	if !same {
		d.since, d.reported = time.Time{}, false
		if on {
			d.since = time.Now()
		}
	}
	d.mu.Unlock()
	if same {
		return
	}
	d.queue.change(func(*queue.Queue, time.Time) { d.queue.closed = on })
	d.announce()
}

// announce reports whether the agent drains, and what it still has.
func (d *drain) announce() {
	since, busy := d.state()
	if since.IsZero() {
		d.env.events.emit(EventDrain, jobRef{}, "jobs are claimed again")
		return
	}
	d.env.events.emit(EventDrain, jobRef{}, "draining: nothing new is claimed until limpet drain --off, SIGUSR2 or a restart; "+
		text.Plural(busy, "job")+" of this agent still running")
	d.reportDrained()
}

// state returns since when the agent claims nothing new, zero when it does claim, and how much of
// its own is not at its end yet: jobs that a driver has, claims that wait to be settled, and
// results that wait for the API.
func (d *drain) state() (since time.Time, busy int) {
	busy = d.queue.running() + d.env.claims.pendingCount()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, busy
}

// on reports whether the agent claims nothing new.
func (d *drain) on() bool {
	since, _ := d.state()
	return !since.IsZero()
}

// reportDrained reports once when the last of what a draining agent had has ended.
func (d *drain) reportDrained() {
	since, busy := d.state()
	if since.IsZero() || busy > 0 {
		return
	}
	d.mu.Lock()
	reported := d.reported
	d.reported = true
	d.mu.Unlock()
	if !reported {
		took := time.Since(since).Round(time.Second)
		d.env.events.emit(EventDrain, jobRef{}, fmt.Sprintf("drained: nothing of this agent runs any more, after %s", took))
	}
}
