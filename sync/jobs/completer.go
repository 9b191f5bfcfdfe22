package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/queue"
)

// The end of a job: record and phase "completing" in one transaction of the state file,
// then the HistoricJob, the DELETE, and the end of the claim. Whatever stops this, the
// next start goes on at the same place.

// completer ends jobs.
type completer struct {
	*env
	archiver *archiver
	releaser *releaser
	pruner   *pruner
	queue    *workQueue
	ending   sync.WaitGroup // claims of completed jobs that are being forgotten
}

// finish ends a held job with an outcome. ctx is that of Run: after its end there is
// still the grace period to get things done.
func (c *completer) finish(ctx context.Context, h *heldJob, p *Progress, out Outcome) queue.Result {
	h.seal()
	status, record := c.finalState(h, p, out)
	ctx, cancel := c.withGrace(ctx, h.ctx)
	defer cancel()
	if result, ok := c.record(ctx, h, record); !ok {
		return result
	}
	c.pass(failpoint.Recorded, h.jobRef)
	h.change(func() {
		h.claim.Phase, h.result = state.PhaseCompleting, result{state: record.State, at: record.Finished}
	})
	return c.deliver(ctx, h, status, out)
}

// finalState makes the final status of a job, with the members that are not ours,
// and its record.
func (c *completer) finalState(h *heldJob, p *Progress, out Outcome) (map[string]any, state.Record) {
	finished := c.clock.roughMillis()
	job := h.last()
	setStatus(job, p.finalStatus(out, h.started, finished))
	status := statusOf(job)
	return status, c.newRecord(h, out, status, finished, p.look())
}

// finishDeleted ends a job that was deleted while it ran. There is nothing left in
// the API to write to; the local history has the result.
func (c *completer) finishDeleted(ctx context.Context, h *heldJob, p *Progress, reason string) queue.Result {
	out := p.Outcome(fmt.Errorf("cancelled: %s", reason))
	out.cancelled = true
	status, record := c.finalState(h, p, out)
	h.stopRenewing()
	ctx = context.WithoutCancel(ctx)
	if err := c.store.Complete(ctx, h.uid, record); err != nil {
		c.events.emit(EventNote, h.jobRef, "no history of a deleted job: "+err.Error())
		c.releaser.dropClaim(ctx, h)
		return queue.Result{NotUrgent: true}
	}
	c.completed(h, out, status)
	return c.endClaim(ctx, h, archiveSkipped)
}

// record stores the result. A full disk keeps the job until there is space; a
// state file that cannot be written at all releases the job, because a result that
// is not stored does not count.
func (c *completer) record(ctx context.Context, h *heldJob, r state.Record) (queue.Result, bool) {
	for try := 1; ; try++ {
		k, _ := h.stored()
		err := storeRecord(ctx, c.store, k, r)
		switch {
		case err == nil:
			return queue.Result{}, true
		case ctx.Err() != nil:
			return c.releaser.stopped(h, "the result could not be stored, the job is taken up again: "+err.Error()), false
		case errors.Is(err, state.ErrReadOnly), errors.Is(err, state.ErrClosed):
			return c.releaser.release(h, "the result cannot be stored: "+err.Error()), false
		}
		c.events.once("record "+h.uid, EventWaiting, h.jobRef, "the result cannot be stored yet: "+err.Error())
		if try <= freeTries && (errors.Is(err, state.ErrFull) || errors.Is(err, syscall.ENOSPC)) {
			c.pruner.freeSpace(ctx)
		}
		pause(ctx, queue.RetryDelay(try))
	}
}

// storeRecord stores the result of a job and its claim as completing, also where
// the state file was rebuilt under us and has lost the claim.
func storeRecord(ctx context.Context, s store, k state.Claim, r state.Record) error {
	err := s.Complete(ctx, k.UID, r)
	if errors.Is(err, state.ErrNotFound) {
		if err = s.PutClaim(ctx, k); err == nil {
			err = s.Complete(ctx, k.UID, r)
		}
	}
	return err
}

// deliver takes a recorded job out of the queue of the API.
func (c *completer) deliver(ctx context.Context, h *heldJob, status map[string]any, out Outcome) queue.Result {
	historic, lookFirst, refusals := "", h.ranBefore, 0
	for try := 1; ; try++ {
		var err error
		if historic == "" {
			if historic, err = c.archiver.archive(ctx, h, status, lookFirst); err != nil {
				lookFirst = true                              // it may have arrived
				if errors.As(err, new(apierrors.APIStatus)) { // an answer of the server
					refusals++
				}
				if refusals >= archiveTries && ctx.Err() == nil {
					c.events.emit(EventNote, h.jobRef, "no HistoricJob could be made: "+err.Error())
					historic, err = archiveSkipped, nil
				}
			}
			if err == nil {
				c.pass(failpoint.Posted, h.jobRef)
			}
		}
		if err == nil {
			err = h.remove(ctx)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return c.undelivered(ctx, h, historic, err)
		}
		h.change(func() { h.result.undelivered = true })
		c.events.once("deliver "+h.uid, EventWaiting, h.jobRef, "the job is done, but the API does not accept the result yet: "+err.Error())
		pause(ctx, max(c.clock.retryAfter(err), queue.RetryDelay(try)))
	}
	c.pass(failpoint.Deleted, h.jobRef)
	h.stopRenewing()
	c.ending.Go(func() { c.forgetEnded(ctx, h, historic) })
	if out.dead != nil {
		c.events.emitState(EventDead, h.jobRef, out.dead.Reason,
			"no attempt is left after "+plural(out.dead.Attempts, "attempt")+"; limpet job retry "+h.uid+" begins anew", nil)
	}
	c.completed(h, out, status)
	return queue.Result{NotUrgent: true}
}

// undelivered leaves a job whose end could not be written. When it is known to be
// claimed by others its claim is dropped, otherwise it is looked at again when the
// API is back, in this process or the next.
func (c *completer) undelivered(ctx context.Context, h *heldJob, historic string, err error) queue.Result {
	cause, taken := h.lost()
	if taken {
		if historic == "" {
			historic = archiveSkipped
		}
		c.events.emit(EventLost, h.jobRef, cause.Error()+"; its result is in the local history only")
		return c.endClaim(ctx, h, historic)
	}
	h.change(func() { h.result.undelivered = true })
	return c.releaser.suspend(h, "the result is stored and sent when the API is back: "+err.Error())
}

// forgetEnded forgets the claim of a job that is gone. Only the end of Run waits for
// it, so that this write shares its fsync with the first one of the next job.
func (c *completer) forgetEnded(ctx context.Context, h *heldJob, historic string) {
	if result := c.endClaim(ctx, h, historic); result.Retry {
		c.queue.add(h.Key, h.repo(), true)
	}
	c.pass(failpoint.Ended, h.jobRef)
}

// endClaim forgets the claim of a completed job. If that fails the job is looked
// at again, found to be gone, and forgotten then.
func (c *completer) endClaim(ctx context.Context, h *heldJob, historic string) queue.Result {
	if err := c.store.EndClaim(context.WithoutCancel(ctx), h.uid, historic); err != nil {
		c.events.once("end "+h.uid, EventNote, h.jobRef, "the claim of a completed job stays in the state file: "+err.Error())
		return c.releaser.suspend(h, "")
	}
	return queue.Result{NotUrgent: true}
}

// completed reports a job that is in history and gone from the queue.
func (c *completer) completed(h *heldJob, out Outcome, status map[string]any) {
	c.pruner.recordAdded()
	outcome := out.State
	if outcome != api.StateSuccess && outcome != api.StateWarning {
		outcome = api.StateError
	}
	var changed int64
	summary, _ := status["summary"].([]any)
	for _, part := range summary {
		kind, _ := part.(map[string]any)
		changed += number(kind["create"]) + number(kind["update"]) + number(kind["delete"])
	}
	took := time.Duration(max(number(status["finished"])-number(status["started"]), 0)) * time.Millisecond
	c.events.measure(Processed{h.action, outcome, changed, took})
	last := h.running()
	last.Job = h.last()
	c.events.emitState(EventCompleted, h.jobRef, out.shown(), out.Message, &last)
}

// newRecord makes the history record of a job that ends now.
func (c *completer) newRecord(h *heldJob, out Outcome, status map[string]any, finished int64, res results) state.Record {
	data, _ := json.Marshal(status) // plain data
	r := state.Record{
		UID: h.uid, Namespace: h.Namespace, Name: h.Name, Repository: h.repository, Action: h.action,
		State: out.shown(), Message: out.Message, Agent: c.o.Agent,
		Started: api.TimeOfMillis(h.started), Finished: time.UnixMilli(finished),
		Spec: raw(h.origin, "spec"), Status: data, Labels: h.origin.GetLabels(),
		RefFrom: res.RefFrom, RefTo: res.RefTo, Created: api.Time(h.created), Commit: res.Commit,
		Steps: finishedSteps(res.Steps, time.Now()), Attempts: h.before, DeadLetter: out.dead,
	}
	delete(r.Labels, api.LabelClaim)
	delete(r.Labels, api.LabelClaimOwner)
	last := state.Attempt{
		N: h.attempt, Agent: r.Agent, State: r.State, Message: r.Message, Started: api.TimeOfMillis(h.run), Finished: r.Finished,
	}
	if out.dead != nil {
		last.State, last.Message = out.dead.Reason, out.dead.LastError
		if last.State == attemptCrashed { // no worker has run in this one
			return r
		}
	}
	r.Attempts = addAttempt(r.Attempts, last)
	return r
}

// withGrace returns a context that ends with the lease, or a grace period after
// Run was told to stop.
func (c *completer) withGrace(run, lease context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(lease)
	done := make(chan struct{})
	stop := context.AfterFunc(run, func() {
		defer close(done)
		pause(ctx, c.o.Grace)
		cancel(ErrShutdown)
	})
	return ctx, func() {
		cancel(context.Canceled)
		if !stop() {
			<-done
		}
	}
}

// A job that has ended can come back with its UID: a state file that was rebuilt
// after damage may hold an old copy of it in its embedded API, and a server may be
// restored from a backup. The history knows it, so it is not done again.

// endedHere reports whether this agent has ended a job and delivered that to the API.
// Otherwise the job went to others.
func (c *completer) endedHere(ctx context.Context, uid string) (bool, error) {
	found, err := c.store.History(ctx, state.Query{UID: uid, Limit: 1})
	if err != nil || len(found) == 0 {
		return false, err
	}
	return found[0].HistoricJob == archivePosted || found[0].HistoricJob == archiveUnavailable, nil
}

// removeEnded takes a job out of the queue that has ended before, if it has.
func (c *completer) removeEnded(ctx context.Context, job *unstructured.Unstructured) (queue.Result, bool) {
	ref := refOf(job)
	ended, err := c.endedHere(ctx, ref.uid)
	if err != nil {
		return queue.Result{Retry: true}, true
	}
	if !ended {
		return queue.Result{}, false
	}
	if err := c.server.deleteJob(ctx, ref.Key, ref.uid, job.GetResourceVersion()); err != nil && !apierrors.IsNotFound(err) {
		return queue.Result{Retry: true, After: c.clock.retryAfter(err)}, true
	}
	if err := c.store.DropClaim(ctx, ref.uid); err != nil {
		return queue.Result{Retry: true}, true
	}
	c.claims.dropPending(ref.uid)
	c.releaser.backoffs.drop(ref.uid)
	c.events.emit(EventNote, ref, "removed from the queue: its end is in the history already")
	return queue.Result{NotUrgent: true}, true
}

// Values of state.Record.HistoricJob.
const (
	archivePosted      = "posted"      // there is a HistoricJob, by this agent or by one that did the job again
	archiveUnavailable = "unavailable" // the server keeps none: it writes its history elsewhere
	archiveSkipped     = "skipped"     // none was made, because the job was no longer ours or the server refused it
)

const (
	// archivePause is how long a server is not asked again after it has answered that
	// it keeps no HistoricJobs.
	archivePause = 10 * time.Minute
	// archiveTries is how often a server is asked that answers with an error of its
	// own. History must not keep a finished job in the queue for ever; the local
	// record is there in any case.
	archiveTries = 8
)

const annoLastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// archiver makes HistoricJobs.
type archiver struct {
	*env

	mu         sync.Mutex // guards pauseUntil
	pauseUntil time.Time  // the server keeps no HistoricJobs
}

// archive makes the HistoricJob of a held job, at most one per UID. lookFirst
// reports that an earlier request may have made it already. The result is a value of
// state.Record.HistoricJob; the error is one that another try may overcome.
func (a *archiver) archive(ctx context.Context, h *heldJob, status map[string]any, lookFirst bool) (string, error) {
	if a.unavailableNow() {
		return archiveUnavailable, nil
	}
	if lookFirst {
		found, err := a.server.archived(ctx, h.Namespace, h.uid)
		switch result, final := a.finalAnswer(err, h); {
		case final:
			return result, nil
		case err != nil:
			return "", err
		case found:
			return archivePosted, nil
		}
	}
	job, err := h.writable(ctx)
	if err != nil {
		return "", err
	}
	err = a.server.archive(ctx, historicJob(job, h.jobRef, status))
	if err == nil || apierrors.IsAlreadyExists(err) {
		return archivePosted, nil
	}
	if result, final := a.finalAnswer(err, h); final {
		return result, nil
	}
	return "", err
}

// finalAnswer returns the result of an answer after which another try is in vain.
func (a *archiver) finalAnswer(err error, h *heldJob) (result string, final bool) {
	switch {
	case refused(err):
		a.mu.Lock()
		a.pauseUntil = time.Now().Add(archivePause)
		a.mu.Unlock()
		a.events.once("historicjobs", EventNote, jobRef{},
			"the server keeps no HistoricJobs ("+string(apierrors.ReasonForError(err))+"); history is kept in the state file only")
		return archiveUnavailable, true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		a.events.emit(EventNote, h.jobRef, "the server refused the HistoricJob: "+err.Error())
		return archiveSkipped, true
	}
	return "", false
}

// unavailableNow reports whether the server has answered lately that it keeps no
// HistoricJobs.
func (a *archiver) unavailableNow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.pauseUntil)
}

// historicJob makes the HistoricJob of a job from its last state.
func historicJob(job *unstructured.Unstructured, ref jobRef, status map[string]any) *unstructured.Unstructured {
	l := map[string]string{}
	for name, value := range job.GetLabels() {
		if name != api.LabelClaim && name != api.LabelClaimOwner {
			l[name] = value
		}
	}
	l[api.LabelOriginalUID] = ref.uid
	if len(validation.IsValidLabelValue(ref.repository)) == 0 {
		l[api.LabelRepository] = ref.repository
	}
	out := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	if spec, ok := job.Object["spec"].(map[string]any); ok {
		out.Object["spec"] = spec
	}
	out.SetAPIVersion(api.HistoricJobs.GroupVersion().String())
	out.SetKind("HistoricJob")
	out.SetNamespace(ref.Namespace)
	out.SetName(historicName(ref))
	out.SetLabels(l)
	annotations := job.GetAnnotations()
	delete(annotations, annoLastApplied)
	if len(annotations) > 0 {
		out.SetAnnotations(annotations)
	}
	return out.DeepCopy()
}

// historicName is the same for every try to archive one job, and no other job has it:
// a request that arrives late makes no second HistoricJob.
func historicName(ref jobRef) string {
	sum := sha256.Sum256([]byte(ref.uid))
	tail := "-" + hex.EncodeToString(sum[:8])
	name := ref.Name[:min(len(ref.Name), validation.DNS1123SubdomainMaxLength-len(tail))]
	return strings.TrimRight(name, "-.") + tail
}
