package repos

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Phases of a reconcile, as Grafana's metrics name them.
const (
	phaseFetch  = "fetch"
	phaseBuild  = "build"
	phaseBranch = "branch"
	phaseStatus = "status"
	phaseSync   = "sync"
	phaseToken  = "token"
)

// attempt is one reconcile of a Repository. Each step reads what the steps before it have
// found, and adds its own.
type attempt struct {
	key     Key
	obj     *unstructured.Unstructured
	memory  *memory
	recheck bool
	leave   func() // of the host; nil = not entered

	facts   facts // observe
	due     dueSteps
	webhook webhookPlan

	checked bool         // the health was checked
	health  healthResult // if it was
	healthy bool         // by that, or else by the status
	probe   *probe       // nil = the remote is not to be asked

	pull *pullRequest // sync; nil = none

	began  time.Time // of the requests
	change *change   // to the status
}

// reporter emits the events of Repositories.
type reporter struct {
	observe func(Event)
	log     *slog.Logger
}

// logOf returns a logger that names the Repository.
func (r reporter) logOf(a *attempt) *slog.Logger {
	return r.log.With("repo", a.key.Name, "namespace", a.key.Namespace)
}

// report emits an event.
func (r reporter) report(k Key, level, text string) {
	r.observe(Event{At: time.Now(), Level: level, Namespace: k.Namespace, Repository: k.Name, Text: text})
}

// step is a part of a reconcile. A result that is not nil ends it.
type step func(ctx context.Context, a *attempt) (*Result, error)

// reconcile reconciles one Repository.
func (c *Controller) reconcile(ctx context.Context, k Key) (Result, error) {
	obj, ok := c.repos.Get(k.Namespace, k.Name)
	if !ok {
		c.forget(k)
		c.uses(k, nil)
		return Result{}, c.dropSuspension(ctx, k, "")
	}
	if obj.GetLabels()[api.LabelPendingDelete] != "" || c.o.Selector != nil && !c.o.Selector.Matches(labels.Set(obj.GetLabels())) {
		c.uses(k, nil)
		return Result{}, nil
	}
	c.uses(k, obj)
	m := c.memoryOf(k, string(obj.GetUID()))
	a := &attempt{key: k, obj: m.newest(obj), memory: m}
	defer func() {
		if a.leave != nil {
			a.leave()
		}
	}()
	for _, step := range []step{
		c.finalizer.finalize,
		c.suspend,
		c.observe,
		c.validate,
		c.checkHealth,
		c.planSync,
		c.webhooks.register,
		c.secrets.mintToken,
		c.writeStatus,
		c.queuePull,
	} {
		result, err := step(ctx, a)
		if err != nil {
			if a.recheck {
				c.wantRecheck(k)
			}
			return Result{}, err
		}
		if result != nil {
			return *result, nil
		}
	}
	repo, err := a.memory.decode(a.obj)
	if err != nil {
		return Result{}, nil
	}
	c.gather(a, repo) // from the object as the steps have left it
	return c.nextReconcile(a), nil
}

// observe finds out what is known and what is due. It makes no request, and ends the
// reconcile when nothing is due.
func (c *Controller) observe(ctx context.Context, a *attempt) (*Result, error) {
	repo, err := a.memory.decode(a.obj)
	if err != nil {
		c.o.Meter.Failed(phaseFetch, true)
		c.report(a.key, "warn", errInvalid.Error()+": "+err.Error())
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	c.gather(a, repo)
	if a.recheck = c.takeRecheck(a.key); a.recheck {
		a.memory.tokenAfter = time.Time{}
	}
	a.facts.token = c.secrets.tokenFacts(ctx, a)
	a.due = a.facts.due()
	a.due.health = a.due.health || a.recheck
	a.observeAnnotations()
	a.webhook.url, a.webhook.due = c.webhooks.plan(a)
	why := cmp.Or(a.due.trigger(), a.webhook.due)
	if why == "" {
		result := c.nextReconcile(a)
		return &result, nil
	}
	c.o.Meter.Triggered(string(why))
	c.logOf(a).Debug("reconcile repository", "trigger", why)
	return nil, nil
}

// gather collects the facts from the object, the memory and the watches.
func (c *Controller) gather(a *attempt, repo api.Repository) {
	m, sync := a.memory, repo.Status.Sync
	a.facts = facts{
		now:        c.now(),
		uid:        string(a.obj.GetUID()),
		generation: a.obj.GetGeneration(),
		repo:       repo,
		interval:   c.interval(repo),
		quota:      c.o.Quota.orStated(repo.Status.Quota),
		start:      c.start,
		token:      a.facts.token,
	}
	f := &a.facts
	if f.quota.Repositories > 0 {
		f.count = c.countRepositories(a.key.Namespace)
	}
	if m.generation != f.generation {
		m.generation, m.started, m.access = f.generation, sync.Started, access{}
	}
	f.askedAt, f.pulledAfter = m.askedAt, sync.Started != 0 && sync.Started != m.started
	if f.pulledFull() {
		m.pullOwed, m.pulledFull = false, true
	}
	f.pullOwed, f.ownGeneration = m.pullOwed, m.ownVersion
	f.dataLost = !m.pulledFull && sync.Finished > 0 && time.UnixMilli(sync.Finished).Before(c.o.Since)
	f.jobExists, f.jobLost = c.findJob(a)
}

// jobLostAfter is how long the job of a pull under way may be out of sight before it
// counts as lost: two watches are not in step.
const jobLostAfter = 10 * time.Second

var pathRepository = kube.PathTo("spec", "repository")

// findJob reports whether a sync job exists, and whether one that should exist has been
// missing for long enough.
func (c *Controller) findJob(a *attempt) (exists, lost bool) {
	sync := a.facts.repo.Status.Sync
	for _, name := range []string{api.JobName(a.key.Name, "pull"), sync.Job} {
		if o, ok := c.jobs.Lookup(a.key.Namespace, name); ok && o.Text(pathRepository) == a.key.Name {
			a.memory.missing = time.Time{}
			return true, false
		}
	}
	if sync.State != api.StatePending && sync.State != api.StateWorking {
		a.memory.missing = time.Time{}
		return false, false
	}
	if a.memory.missing.IsZero() || a.memory.missing.After(a.facts.now) { // or by a clock that was wrong
		a.memory.missing = a.facts.now
	}
	return false, a.facts.now.Sub(a.memory.missing) >= jobLostAfter
}

// nextReconcile returns when the Repository is reconciled next without any event.
func (c *Controller) nextReconcile(a *attempt) Result {
	at := a.facts.nextByTime()
	if missing := a.memory.missing; !missing.IsZero() {
		at = earlier(at, missing.Add(jobLostAfter))
	}
	at = earlier(at, a.nextToken())
	at = earlier(at, c.webhooks.next(a))
	if at.IsZero() {
		return Result{}
	}
	// From the clock of the server to that of this host, which does not jump.
	return Result{Next: time.Now().Add(at.Sub(a.facts.now))}
}
