package repos

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
)

// observer is the step that finds out what is known of a Repository and what is due. It
// makes no request, and ends the reconcile when nothing is due.
type observer struct {
	reporter    reporter
	meter       Meter
	facts       *factSource
	webhooks    *webhooks
	secrets     *secrets
	takeRecheck func(reconcile.Key) bool
}

func (o *observer) observe(ctx context.Context, a *attempt) (bool, error) {
	repo, err := a.memory.decode(a.obj)
	if err != nil {
		o.meter.Failed(phaseFetch, true)
		o.reporter.report(a.key, "warn", reconcile.ErrInvalid.Error()+": "+err.Error())
		return false, fmt.Errorf("%w: %w", reconcile.ErrInvalid, err)
	}
	o.facts.gather(a, repo)
	if a.recheck = o.takeRecheck(a.key); a.recheck {
		a.memory.tokenAfter = time.Time{}
	}
	a.facts.token = o.secrets.tokenFacts(ctx, a)
	a.due = a.facts.due()
	a.due.health = a.due.health || a.recheck
	// Annotations that are others than in the last reconcile make a check and a pull due, and so do
	// signatures that are asked for and were never verified. While a pull is under way it waits for
	// its end.
	f, now := &a.facts, a.facts.sourceAnnotations()
	if a.memory.annotations == nil {
		before := now
		if f.repo.GitVerify != "" && f.repo.Status.Sync.LastRef != "" && api.VerificationOf(f.repo.Status.Conditions).Trust == "" {
			before = "never verified"
		}
		a.memory.annotations = &before
	}
	if *a.memory.annotations != now && !f.jobExists {
		a.due.health, a.due.resync = true, f.repo.Spec.Sync.Enabled
	}
	a.webhook.url, a.webhook.due = o.webhooks.plan(a)
	why := cmp.Or(a.due.trigger(), a.webhook.due)
	if why == "" {
		a.result = o.next(a)
		return true, nil
	}
	o.meter.Triggered(why)
	o.reporter.logOf(a).Debug("reconcile repository", "trigger", why)
	return false, nil
}

// next returns when the Repository is reconciled next without any event.
func (o *observer) next(a *attempt) reconcile.Result {
	at := a.facts.nextByTime()
	if missing := a.memory.missing; !missing.IsZero() {
		at = earlier(at, missing.Add(jobLostAfter))
	}
	at = earlier(earlier(earlier(at, a.nextToken()), o.webhooks.next(a)), a.facts.unservedAt)
	if at.IsZero() {
		return reconcile.Result{}
	}
	// From the clock of the server to that of this host, which does not jump.
	return reconcile.Result{Next: time.Now().Add(at.Sub(a.facts.now))}
}

// factSource collects the facts from the object, the memory and the watches.
type factSource struct {
	repos, jobs lister
	quota       Quota
	since       time.Time                          // see Options.Since
	now         func() time.Time                   // of the server
	interval    func(api.Repository) time.Duration // intervalOf
	start       reconcile.Start
}

func (s *factSource) gather(a *attempt, repo api.Repository) {
	m, sync := a.memory, repo.Status.Sync
	a.facts = facts{
		now:        s.now(),
		uid:        string(a.obj.GetUID()),
		generation: a.obj.GetGeneration(),
		repo:       repo,
		interval:   s.interval(repo),
		quota:      s.quota.orStated(repo.Status.Quota),
		start:      s.start,
		token:      a.facts.token,
	}
	f := &a.facts
	if f.quota.Repositories > 0 {
		for _, o := range s.repos.Objects() {
			if o.Namespace() == a.key.Namespace && o.Text(pathDeleted) == "" {
				f.count++
			}
		}
	}
	if m.generation != f.generation {
		m.generation = f.generation
		m.started = sync.Started
		m.access = access{}
	}
	f.askedAt, f.pulledAfter = m.askedAt, sync.Started != 0 && sync.Started != m.started
	if f.pulledFull() {
		m.pullOwed, m.pulledFull = false, true
	}
	f.pullOwed, f.ownGeneration = m.pullOwed, m.ownVersion
	f.dataLost = !m.pulledFull && sync.Finished > 0 && time.UnixMilli(sync.Finished).Before(s.since)
	f.jobExists, f.jobLost = s.findJob(a)
}

// jobLostAfter is how long the job of a pull under way may be out of sight before it
// counts as lost: two watches are not in step.
const jobLostAfter = 10 * time.Second

var pathRepository = kube.PathTo("spec", "repository")

// findJob reports whether a sync job exists, and whether one that should exist has been missing for
// long enough.
func (s *factSource) findJob(a *attempt) (exists, lost bool) {
	sync, missing := a.facts.repo.Status.Sync, &a.memory.missing
	for _, name := range []string{api.JobName(a.key.Name, "pull"), api.JobBeside(a.key.Name), sync.Job} {
		job, ok := s.jobs.Get(a.key.Namespace, name)
		if !ok || api.Spec(job, "repository") != a.key.Name {
			continue
		}
		if at := api.UnservedAt(job); at.IsZero() || a.facts.now.Before(at) {
			*missing, a.facts.unservedAt = time.Time{}, at
			return true, false
		}
	}
	if sync.State != api.StatePending && sync.State != api.StateWorking {
		*missing = time.Time{}
		return false, false
	}
	if missing.IsZero() || missing.After(a.facts.now) { // or by a clock that was wrong
		*missing = a.facts.now
	}
	return false, a.facts.now.Sub(*missing) >= jobLostAfter
}
