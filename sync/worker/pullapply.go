package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
)

func (r *pull) pullAll(ctx context.Context, tree resources.Tree) error {
	compared := r.timed(jobs.SyncFull, "compare")
	r.Progress.SetMessage(ctx, "compare with the server")
	live, err := r.liveItems(ctx, r.corrects())
	if err != nil {
		return err
	}
	metas, err := r.folderFiles(ctx, tree, nil)
	if err != nil {
		return err
	}
	plan := resources.Full(r.target, tree, live, metas)
	r.counted = countItems(live)
	if err := r.settle(ctx, plan); err != nil {
		return err
	}
	if r.corrects() {
		if err := r.rewriteDrifted(ctx, plan); err != nil {
			return err
		}
	}
	if err := r.guard(plan.Deletions(r.after.Selected()...), plan.Managed()); err != nil {
		return err
	}
	compared()
	if r.preview != nil {
		r.preview.held = plan.Held()
	}
	if plan.Empty() {
		r.Progress.SetFinalMessage("no changes to sync")
		return nil
	}
	return r.apply(ctx, plan, int64(len(live)), func(phase string, took time.Duration) { r.Progress.Phase(jobs.SyncFull, phase, took) })
}

// pullChanges applies the changes since the last commit. It returns false when the commits cannot
// be compared, or the changes are not sufficient.
func (r *pull) pullChanges(ctx context.Context, tree resources.Tree, last string) (bool, error) {
	compared := r.timed(jobs.SyncIncremental, "compare")
	diff, err := r.o.Git.Changes(ctx, r.at.Remote, last, r.at.Ref.Hash, r.at.Dir)
	var before git.Tree
	if err == nil {
		before, err = r.o.Git.Tree(ctx, r.at.Remote, last, r.at.Dir)
	}
	switch {
	case ctx.Err() != nil:
		return false, err
	case err != nil:
		r.log.Info("compare commits failed, pulling in full", "step", "plan", "ref", checkout.ShortHash(last), "err", err)
		return false, nil
	}
	if why := fullPullReason(diff, r.o.MaxIncremental, r.unread.before.Files); why != "" {
		r.log.Info("changes are not sufficient, pulling in full", "step", "plan", "reason", why)
		return false, nil
	}
	// The changes are those of files. Other entries have kept what was made from their paths, and may
	// be all of a directory.
	for _, f := range before.Refused {
		if !slices.Contains(tree.Refused, f.Path) {
			r.log.Info("an entry that was left out is gone, pulling in full", "step", "plan", "path", f.Path)
			return false, nil
		}
	}
	if diff = r.again(diff); len(diff) == 0 && r.unread.before.Empty() && slices.Equal(before.Dirs, tree.Dirs) {
		r.Progress.SetFinalMessage("no changes detected between commits")
		return true, nil
	}
	r.Progress.SetMessage(ctx, "incremental comparison")
	plan, err := r.increment(ctx, tree, diff)
	if err != nil {
		return false, err
	}
	r.counted = r.status.stats
	n := plan.Deletions()
	if n >= guardAll && n <= guardFew && int64(n)+1 >= r.counted.total() { // with a root folder
		r.log.Info("all objects would go, pulling in full", "step", "plan")
		return false, nil
	}
	uncounted := r.counted == nil && r.status.maxResources > 0
	if n > guardFew || uncounted {
		live, err := r.server.Managed(ctx, r.target.Repository)
		if err != nil {
			return false, err
		}
		r.counted = countItems(live)
		if err := r.guard(n, len(live)); err != nil {
			return false, err
		}
	}
	compared()
	var writes, cleanup time.Duration
	err = r.apply(ctx, plan, r.counted.total(), func(phase string, took time.Duration) {
		if phase == "old_folder_cleanup" {
			cleanup = took
		} else {
			writes += took
		}
	})
	r.Progress.Phase(jobs.SyncIncremental, "apply", writes)
	r.Progress.Phase(jobs.SyncIncremental, "cleanup", cleanup)
	if err != nil || r.preview != nil || r.Progress.Outcome(nil).State == api.StateError {
		return true, err
	}
	if path := r.usedAgain(); path != "" {
		r.log.Info("a file can be used again, pulling in full", "step", "plan", "path", path)
		return false, nil
	}
	return true, nil
}

// increment plans the changes since a commit. tree is the new one.
func (r *pull) increment(ctx context.Context, tree resources.Tree, diff []git.Change) (*resources.Plan, error) {
	changes, err := r.changes(ctx, diff)
	if err != nil {
		return nil, err
	}
	folders, err := r.server.ManagedFolders(ctx, r.target.Repository)
	if err != nil {
		return nil, err
	}
	metas, err := r.folderFiles(ctx, tree, folders)
	if err != nil {
		return nil, err
	}
	plan := resources.Increment(r.target, tree, folders, metas, changes)
	return plan, r.settle(ctx, plan)
}

// changes converts differences and adds the identities of the old files.
func (r *pull) changes(ctx context.Context, diff []git.Change) ([]resources.FileChange, error) {
	actions := map[string]resources.Action{
		git.ChangeAdded: resources.Created, git.ChangeModified: resources.Updated,
		git.ChangeDeleted: resources.Deleted, git.ChangeRenamed: resources.Renamed,
	}
	out := make([]resources.FileChange, len(diff))
	var old []checkout.Blob
	var at []int
	for i, d := range diff {
		c := resources.FileChange{Action: actions[d.Type], Path: d.Path, From: d.From, Hash: d.Hash, FromHash: d.FromHash}
		out[i] = c
		if p := c.OldFile(); p != "" {
			old, at = append(old, checkout.Blob{Path: p, Hash: c.FromHash}), append(at, i)
		}
	}
	ids, err := r.identities(ctx, old)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		out[at[i]].Previous = id
	}
	return out, nil
}

// settle finds the objects that move from one file to another.
func (r *pull) settle(ctx context.Context, plan *resources.Plan) error {
	list := wantedBy(plan.Unread())
	ids, err := r.identities(ctx, list)
	if err != nil {
		return err
	}
	found := map[string]resources.Identity{}
	for i, id := range ids {
		if id != nil {
			found[list[i].Path] = *id
		}
	}
	plan.Settle(found)
	return nil
}

func wantedBy(changes []resources.Change) []checkout.Blob {
	list := make([]checkout.Blob, len(changes))
	for i, c := range changes {
		list[i] = checkout.Blob{Path: c.Path, Hash: c.Hash}
	}
	return list
}

// timed starts the timer of a phase of a sync. The returned function records the phase; it is not
// called for an aborted phase.
func (r *pull) timed(sync, phase string) func() {
	began := time.Now()
	return func() { r.Progress.Phase(sync, phase, time.Since(began)) }
}

// apply carries the plan out and counts the objects of the repository afterwards.
func (r *pull) apply(ctx context.Context, plan *resources.Plan, have int64, phase func(string, time.Duration)) error {
	if err := failpoint.Pass(failpoint.Planned); err != nil {
		return err
	}
	r.Progress.SetTotal(ctx, plan.Len())
	r.content.FetchLarge(ctx, wantedBy(plan.WriteFiles))
	r.Progress.SetMessage(ctx, "full comparison")
	server, results := resources.Server(r.server), resources.Recorder(&recorder{pull: r, next: time.Now().Add(markEvery)})
	if r.preview == nil {
		// An attempt after a crash has to know that the target may be between two commits.
		if err := r.Progress.Mark(ctx, mark{Ref: r.at.Ref.Hash, Staged: r.after}); err != nil {
			return err
		}
		if err := r.status.writing(ctx); err != nil {
			return err
		}
		r.applying = true
	} else {
		server, results = r.server.ReadOnly(), r.preview
	}
	tally, err := resources.Apply{
		Server: server, Reader: r.content, Recorder: results, Namespace: r.Namespace,
		Parallel: r.o.Parallel, MaxResources: r.status.maxResources, Count: have, Phase: phase,
	}.Run(ctx, plan)
	r.counted = r.counted.after(tally)
	return err
}

// A pull that deletes more than guardShare of the objects, or more than guardObjects of them, needs
// consent: the cause is more often an empty tree, a wrong path or a wrong branch than an intention.
// The share of up to guardFew deletions means little: they are permitted unless they are all
// objects, and at least guardAll.
const (
	guardAll     = 3
	guardFew     = 10
	guardShare   = 0.3
	guardObjects = 50
)

// guard returns an error for a mass deletion without consent. The caller has changed nothing yet.
func (r *pull) guard(deletions, managed int) error {
	all := deletions >= guardAll && deletions >= managed
	if !all && (deletions <= guardFew || deletions <= guardObjects && float64(deletions) <= guardShare*float64(managed)) {
		return nil
	}
	if r.Object.GetAnnotations()[api.AnnoAllowMassDelete] == "true" {
		return nil
	}
	err := fmt.Errorf("this pull would delete %d of the %d objects of repository %q, so nothing was changed; "+
		"if that is meant, run: limpet repo pull %s --full --allow-mass-delete --namespace %s",
		deletions, managed, r.target.Repository, r.target.Repository, r.Namespace)
	if r.preview != nil {
		r.preview.Guarded, err = err.Error(), nil
	}
	return err
}

// A resume mark is saved per batch, because each one costs a write to disk.
const (
	markChanges = 200
	markEvery   = time.Second
)

// recorder reports the results of Apply to the progress of a job.
type recorder struct {
	pull *pull
	done atomic.Int64
	next time.Time // of the next mark; guarded by busy
	busy atomic.Bool
	lost atomic.Pointer[error]
}

func (r *recorder) Record(ctx context.Context, res resources.Result) {
	if errors.As(res.Warning, new(*resources.QuotaError)) {
		r.pull.leftOut.Add(1)
	}
	r.pull.record(ctx, res)
	if err := failpoint.Pass(failpoint.Applying); err != nil {
		r.lost.Store(&err)
	}
	n := r.done.Add(1)
	if !r.busy.CompareAndSwap(false, true) {
		return
	}
	defer r.busy.Store(false)
	if n%markChanges != 0 && time.Now().Before(r.next) {
		return
	}
	if err := r.pull.Progress.Mark(ctx, mark{Ref: r.pull.at.Ref.Hash, Done: int(n), Staged: r.pull.after}); err != nil {
		r.lost.Store(&err)
	}
	r.next = time.Now().Add(markEvery)
}

func (r *recorder) TooManyErrors() error {
	if err := r.lost.Load(); err != nil {
		return *err
	}
	return r.pull.Progress.TooManyErrors()
}
