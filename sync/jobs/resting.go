package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"limpet/state"
	"limpet/sync/api"
)

// What is kept of a job that rests between two attempts. Its mark stays in the
// state file: if this agent gets the job again, also after a restart, the work
// goes on from it. And so do its attempts: when a person deletes the job while
// nobody holds it, the record that tells of them is made by the agent that had
// it last. Both are given up where keeping them would cost too much.

// Bounds of what is kept: a mark may be as large as the texts of its job
// (textBudget), the attempts are small.
const (
	maxRespites = 4096
	maxMarks    = 256
)

// respite is a job that was given back.
type respite struct {
	claim state.Claim
	token string // of the claim that was given back: the watch may show it late
	// elsewhere says that somebody has claimed the job since: what becomes of it
	// is told by them.
	elsewhere bool
	// unwatched says that the watch has begun anew since: somebody may have
	// claimed the job without being seen.
	unwatched bool
}

// rest turns the claim of a job that was given back into one that rests, or
// forgets it when there is nothing to keep.
func (c *Controller) rest(ctx context.Context, h *held) {
	h.mu.Lock()
	k := h.claim
	h.mu.Unlock()
	job := h.last()
	k.Phase, k.Token, k.Doomed, k.Attempts = state.PhaseResting, "", false, attemptsEnded(job)
	c.mu.Lock()
	known := len(c.resting)
	c.mu.Unlock()
	if known >= maxMarks {
		k.Mark = nil
	} else if len(k.Attempts) > 0 {
		k.Spec, k.Status = raw(job, "spec"), raw(job, "status")
	}
	if known >= maxRespites || len(k.Mark) == 0 && len(k.Attempts) == 0 {
		c.dropClaim(ctx, h)
		return
	}
	if err := c.store.PutClaim(ctx, k); err != nil {
		c.dropClaim(ctx, h)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resting[k.UID] = respite{claim: k, token: h.token}
}

// rested returns the claim with which a job rests, if it does so here.
func (c *Controller) rested(uid string) (state.Claim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.resting[uid]
	return r.claim, ok
}

// restsElsewhere notes when somebody has claimed a job that rests here: the claim
// is to be seen, or the attempt that came of it.
func (c *Controller) restsElsewhere(job *unstructured.Unstructured) {
	uid := api.Meta(job, "uid")
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.resting[uid]
	if !ok || r.elsewhere {
		return
	}
	known := 0
	if n := len(r.claim.Attempts); n > 0 {
		known = r.claim.Attempts[n-1].N
	}
	if claimed(job) && api.Label(job, api.LabelClaimOwner) != r.token || attemptsOf(job) > known {
		r.elsewhere = true
		c.resting[uid] = r
	}
}

// unwatch notes that the watch begins anew.
func (c *Controller) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, r := range c.resting {
		r.unwatched = true
		c.resting[uid] = r
	}
}

// sweep forgets the jobs that have left the queue while they rested. Of those
// that were deleted it makes the record.
func (c *Controller) sweep(ctx context.Context) {
	c.mu.Lock()
	var gone []respite
	for uid, r := range c.resting {
		job, ok := c.jobs.Get(r.claim.Namespace, r.claim.Name)
		if !ok || string(job.GetUID()) != uid {
			gone = append(gone, r)
		}
	}
	c.mu.Unlock()
	sort.Slice(gone, func(i, j int) bool { return gone[i].claim.UID < gone[j].claim.UID })
	for _, r := range gone {
		uid := r.claim.UID
		if c.isOwn(uid) {
			continue // its record is that of the claim now
		}
		if err := c.unrest(ctx, r); err != nil {
			return // the next sweep tries again
		}
		c.mu.Lock()
		delete(c.resting, uid)
		c.mu.Unlock()
	}
}

// unrest forgets a job that has left the queue, as far as the watch shows. It was
// deleted if nobody has claimed it since and nobody has archived it. What the
// watch may have missed and no HistoricJob can tell is not known, and then there
// is no record: it might call a job cancelled that others have done.
func (c *Controller) unrest(ctx context.Context, r respite) error {
	k := r.claim
	if r.elsewhere || len(k.Attempts) == 0 {
		return c.store.DropClaim(ctx, k.UID)
	}
	switch job, err := c.server.job(ctx, key{k.Namespace, k.Name}); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case string(job.GetUID()) == k.UID: // the watch was behind, or is of another namespace now
		return c.store.DropClaim(ctx, k.UID)
	}
	unknown := r.unwatched
	if !c.archiveResting() {
		switch found, err := c.server.archived(ctx, k.Namespace, k.UID); {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		case err != nil:
			return err
		case found:
			return c.store.DropClaim(ctx, k.UID)
		default:
			unknown = false
		}
	}
	if unknown {
		return c.store.DropClaim(ctx, k.UID)
	}
	rec := c.deletedAtRest(k)
	if err := c.keepRecord(ctx, k, rec); err != nil {
		return err
	}
	c.trims.count()
	c.tellState(EventCompleted, about{key{k.Namespace, k.Name}, k.UID, k.Repository, k.Action, k.Attempt}, rec.State, rec.Message)
	return c.store.EndClaim(ctx, k.UID, skipped)
}

// deletedAtRest is the record of a job that was deleted between two attempts.
func (c *Controller) deletedAtRest(k state.Claim) state.Record {
	last, now := k.Attempts[len(k.Attempts)-1], c.nowMillis()
	text := clip(fmt.Sprintf("cancelled: the job was deleted after attempt %d: %s", last.N, last.Message), maxMessage)
	status := map[string]any{}
	if utiljson.Unmarshal(k.Status, &status) != nil || status == nil {
		status = map[string]any{}
	}
	status["state"], status["message"], status["finished"] = api.StateError, text, now
	data, _ := json.Marshal(status) // plain data
	return state.Record{UID: k.UID, Namespace: k.Namespace, Name: k.Name, Repository: k.Repository, Action: k.Action,
		State: stateCancelled, Message: text, Agent: c.o.Agent, Started: last.Started, Finished: time.UnixMilli(now),
		Spec: k.Spec, Status: data, Attempts: k.Attempts}
}
