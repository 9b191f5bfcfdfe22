package repos

import (
	"cmp"
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/worker/checkout"
)

// pullRequest is the pull that a Repository wants.
type pullRequest struct {
	incremental bool
	reason      string
}

// resyncDue reports whether the interval asks for a request to the remote, or a pull is owed.
func (f *facts) resyncDue() bool {
	sync := f.repo.Status.Sync
	switch {
	case !f.repo.Spec.Sync.Enabled || f.jobExists:
		return false
	case f.jobLost: // pending or working, and the job does not exist any more
		return true
	case sync.State == api.StatePending || sync.State == api.StateWorking:
		return false // under way
	case sync.Finished == 0 && sync.State == "":
		return false // never begun: the first pull has reasons of its own
	case f.pullOwed || f.dataLost:
		return true
	}
	return !f.now.Before(f.nextPull())
}

// nextPull returns when the interval asks for a request to the remote.
func (f *facts) nextPull() time.Time {
	last, finished := f.askedAt, f.repo.Status.Sync.Finished
	if at := time.UnixMilli(finished); finished > 0 && at.After(last) {
		last = at
	}
	if last.After(f.now.Add(f.interval)) {
		// It comes from a clock that was wrong. Waiting for it could take years, and nothing but a pull
		// puts it right.
		return f.now
	}
	return f.start.SlotAfter(last, f.uid, f.interval)
}

// strategy returns the pull to queue, if any. healthy is the state of now, while the status has
// that of before. latest asks the remote for the commit of the branch; it is called only when that
// decides, and reports whether its tag has moved. Source: the ten cases of Grafana's controller,
// the first that applies; those between them are ours.
func strategy(f *facts, due dueSteps, healthy bool, latest func() (ref string, moved bool, err error)) *pullRequest {
	status := f.repo.Status
	wasUnhealthy := status.Health.Checked > 0 && !status.Health.Healthy
	switch {
	case !f.repo.Spec.Sync.Enabled: // 1
		return nil
	case due.over || due.blocked: // 2
		return nil
	case !healthy: // 3
		return nil
	case wasUnhealthy: // 4
		return &pullRequest{reason: "healthy again"}
	case f.pulledFull(): // by another request
	case status.ObservedGeneration < 1 || status.Health.Checked == 0: // 5, and 4 at the first check
		return &pullRequest{reason: "first pull"}
	case f.specChanged(): // 6
		return &pullRequest{reason: "spec changed"}
	}
	switch {
	case f.quotaRaised():
		return &pullRequest{reason: "more resources are allowed"}
	case f.keysChanged:
		return &pullRequest{incremental: true, reason: "keys or mode of verification changed"}
	case !due.resync:
		return nil
	case f.jobLost: // what it was to pull is not known, so everything is
		return &pullRequest{reason: "the last pull was lost"}
	case f.pullOwed:
		return &pullRequest{reason: "the last pull began too early"}
	case f.dataLost:
		return &pullRequest{reason: "objects may be lost"}
	}
	// 7, one without versions, is only a Repository of type local.
	ref, moved, err := latest()
	switch {
	case err != nil: // 8
		return &pullRequest{incremental: true, reason: "interval"}
	case ref == status.Sync.LastRef && status.Sync.State == api.StateError: // it is known, but not in place
		return &pullRequest{reason: "the last pull failed"}
	case ref == status.Sync.LastRef && moved:
		return &pullRequest{incremental: true, reason: "the tag was made anew"}
	case ref == status.Sync.LastRef: // 9
		return nil
	}
	// 10. The pull itself compares the commits, and falls back to everything where it
	// must: it has them, and this controller would have to fetch them.
	return &pullRequest{incremental: true, reason: "new commit " + ref[:min(len(ref), 7)]}
}

// syncPlan is the step that decides which pull to queue, and asks the remote for that where it
// must.
type syncPlan struct {
	trust    *checkout.Signers // nil = signatures are not verified
	reporter reporter
}

func (s syncPlan) plan(ctx context.Context, a *attempt) (bool, error) {
	s.observeTrust(ctx, a)
	a.pull = strategy(&a.facts, a.due, a.healthy, func() (string, bool, error) {
		err := a.probe.ask(ctx)
		return a.probe.ref.Hash, a.facts.tagMoved(a.probe.ref), cmp.Or(err, a.probe.err)
	})
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	a.adoptProbe()
	return false, nil
}

// pullQueue is the step that queues the pull job.
type pullQueue struct {
	reporter reporter
	server   server
	meter    Meter
}

// queue queues the pull job. A pull that is wanted while another is under way is owed.
func (q pullQueue) queue(ctx context.Context, a *attempt) (bool, error) {
	if a.pull == nil {
		return false, nil
	}
	m, full, trust := a.memory, !a.pull.incremental, a.facts.trust
	err := q.server.pull(ctx, a.key, !full)
	switch {
	case apierrors.IsAlreadyExists(err):
		m.pullOwed = m.pullOwed || full
		return false, nil
	case err != nil:
		q.meter.Failed(phaseSync, false)
		return false, err
	}
	m.askedAt, m.verifiedFor = a.facts.now, &trust // whatever it is queued for, it verifies
	if full {
		m.pullOwed, m.pulledFull = false, true
	}
	q.reporter.report(a.key, "info", "pull queued: "+a.pull.reason)
	return false, nil
}

// observeTrust finds out whether the verification holds. Keys that cannot be read for the moment
// change nothing.
//
// A Repository that asks for signatures has what was pulled verified anew, by a pull, when the
// keys, the mode or the principals are not those that it was verified by, also when its commit is
// the same; and when the tag was made anew. The pull may be run by another agent, whose keys are
// others and which says so in the status: so it is queued once for each set of keys, and agents
// with different keys do not queue pulls in turn.
func (s syncPlan) observeTrust(ctx context.Context, a *attempt) {
	if s.trust == nil {
		return
	}
	f := &a.facts
	digest, tag, err := s.trust.Asked(ctx, a.key.Namespace, a.key.Name, f.repo)
	if err != nil {
		s.reporter.logOf(a).Debug("cannot read the keys of signers", "err", err)
		return
	}
	f.trust, f.signedTag = digest, tag
	queued := a.memory.verifiedFor
	f.keysChanged = digest != api.VerificationOf(f.repo.Status.Conditions).Trust && (queued == nil || *queued != digest)
}

// tagMoved reports whether a tag that the probe has asked for is another object than the
// one that was verified. A verification by another agent may be about another object.
func (f *facts) tagMoved(ref git.Ref) bool {
	object, verified := ref.Hash, api.VerificationOf(f.repo.Status.Conditions)
	if ref.Tag != "" {
		object = ref.Tag
	}
	return f.signedTag && verified.Trust == f.trust && verified.Object != object
}
