package worker

import (
	"context"
	"errors"
	"fmt"

	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/worker/commit"
)

// Write is the worker of an action that writes to Git.
type Write struct {
	pull    *Pull // pulls what was pushed
	commits *commit.Writer
	action  string
	order   func(w *Write, t *jobs.Task) (order, error)
}

// order is the write of a job.
type order struct {
	commit.Order
	// then does what follows when the branch has the commit, or when there was nothing to commit.
	then func(ctx context.Context, r *commit.Run) error
}

var _ jobs.Worker = (*Write)(nil)

// NewWrites returns the workers of all actions that write to Git. p pulls what they push; keys may
// be nil.
func NewWrites(p *Pull, keys auth.Source) (all []*Write) {
	commits := &commit.Writer{Source: p.o.Source, Keys: keys, Store: p.o.Store}
	for _, w := range []Write{
		{action: "delete", order: deleteOrder},
		{action: "move", order: moveOrder},
		{action: "push", order: pushOrder},
		{action: "migrate", order: migrateOrder},
		{action: "fixFolderMetadata", order: fixFoldersOrder},
	} {
		w.pull = p
		w.commits = commits
		all = append(all, &w)
	}
	return all
}

// Action implements jobs.Worker.
func (w *Write) Action() string { return w.action }

// Ready implements jobs.Worker, by the rules of Pull.Ready.
func (w *Write) Ready(ctx context.Context, t jobs.Task) error {
	if t.Repo == nil {
		return nil
	}
	return w.pull.checkCredentials(ctx, t)
}

// begin returns the run of a job whose options are valid.
func (w *Write) begin(t *jobs.Task) (order, *commit.Run, error) {
	if t.Repo == nil {
		return order{}, nil, fmt.Errorf("repository %q does not exist", t.Job.Spec.Repository)
	}
	o, err := w.order(w, t)
	if err != nil {
		return o, nil, err
	}
	r, err := w.commits.Begin(t, o.Order)
	return o, r, err
}

// Run implements jobs.Worker.
func (w *Write) Run(ctx context.Context, t *jobs.Task) error {
	o, r, err := w.begin(t)
	if err != nil {
		return err
	}
	t.Progress.StrictMaxErrors(1)
	err = r.Push(ctx)
	if err == nil {
		return o.then(ctx, r)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return passing(err)
}

// pullAfter pulls the changes of a commit on the branch of the Repository; one on another branch is
// only linked.
func (w *Write) pullAfter(ctx context.Context, r *commit.Run) error {
	if r.Order.Ref != "" {
		return linkOnly(ctx, r)
	}
	return w.pullOwn(ctx, r)
}

// pullOwn pulls the branch of the Repository. The results are those of the pull, and the warnings
// about the changes.
func (w *Write) pullOwn(ctx context.Context, r *commit.Run) error {
	progress := r.Task.Progress
	progress.ResetResults()
	for _, w := range r.Saved.Warnings {
		w.Result.Warning = errors.New(w.Text)
		progress.Record(ctx, w.Result)
	}
	if !r.Task.Repository.Spec.Sync.Enabled {
		progress.SetFinalMessage("committed; sync is not enabled, so nothing was pulled")
		return nil
	}
	err := w.pull.run(ctx, r.Task, r.Saved)
	if err == nil && r.Saved.Hash == "" {
		progress.SetFinalMessage("nothing to commit")
	}
	return err
}

// linkOnly is what follows a write that nothing is pulled after.
func linkOnly(_ context.Context, r *commit.Run) error {
	r.Link()
	return nil
}
