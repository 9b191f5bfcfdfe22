package worker

import (
	"cmp"
	"context"

	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
	"limpet/sync/worker/target"
)

// syncDirectory makes the directory of the Repository equal to the commit.
func (r *pull) syncDirectory(ctx context.Context) error {
	err := r.makeDirectory(ctx)
	if err == nil {
		r.worker.looks.wrote(r.directory, r.at.Ref.Hash)
	}
	return err
}

func (r *pull) makeDirectory(ctx context.Context) error {
	if r.partial && r.unread.before.Empty() && r.at.Ref.Hash != r.status.LastRef {
		if done, err := r.amendDirectory(ctx); done || err != nil {
			return err
		}
	}
	tree, err := r.tree(ctx)
	if err != nil {
		return err
	}
	open := r.directory.Open
	if r.early != nil {
		open = r.early.Open
	}
	dir, err := open(ctx)
	if err != nil {
		return err
	}
	defer dir.Close()
	plan, err := r.planDirectory(ctx, dir, tree, r.unread)
	if err != nil {
		return err
	}
	return r.writeDirectory(ctx, dir, plan)
}

// amendDirectory writes the changes since the last pull, all files of which could be used, in the
// time of the changes. It has done nothing where it is not sure that these are sufficient.
func (r *pull) amendDirectory(ctx context.Context) (done bool, err error) {
	last := r.status.LastRef
	diff, err := r.worker.o.Source.Git.Changes(ctx, r.at.Remote, last, r.at.Ref.Hash, "")
	if err != nil && ctx.Err() == nil {
		r.log.Info("compare commits failed, reading the whole tree", "step", "read", "err", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	dir, err := r.directory.Open(ctx)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	commit := target.Commit{Hash: r.at.Ref.Hash, Content: r.content}
	plan, ok, err := r.directory.Amend(ctx, dir, last, r.at.Dir, diff, commit)
	if err != nil || !ok {
		return false, err
	}
	r.partial = false
	r.see(ctx, git.Tree{})
	return true, r.writeDirectory(ctx, dir, plan)
}

// planDirectory compares the open directory with the commit. Files that are left out are recorded.
func (r *pull) planDirectory(
	ctx context.Context, dir *sink.Dir, tree git.Tree, to resources.Recorder,
) (*target.DirectoryPlan, error) {
	r.directory.KeepEdits = r.directory.KeepEdits && !r.terms.corrects
	r.directory.Thorough = r.terms.corrects
	plan, err := r.directory.Compare(ctx, dir, target.Commit{
		Hash:    r.at.Ref.Hash,
		Files:   tree.Files,
		Content: r.content,
		Unread:  r.unread.before.Files,
		Known:   r.partial,
	})
	r.partial = false
	for _, res := range plan.LeftOut {
		to.Record(ctx, res)
	}
	if plan.Warning != "" {
		r.unread.warn(ctx, plan.Warning)
	}
	return plan, err
}

// writeDirectory carries a plan out, unless it deletes too much.
func (r *pull) writeDirectory(ctx context.Context, dir *sink.Dir, plan *target.DirectoryPlan) error {
	if err := r.terms.guard(r.repo, len(plan.Removed), dir.Files()); err != nil {
		return err
	}
	if others := plan.Foreign(); others != "" {
		r.log.Warn("unmanaged files left in place", "step", "apply", "dir", r.directory.At.String(), "files", others)
	}
	same := r.unread.none() && plan.Unchanged()
	plan.Fetch(ctx)
	warned := plan.Warning
	var err error
	if r.counted, err = plan.Apply(ctx, r.unread); err != nil {
		return err
	}
	if plan.Warning != warned {
		r.unread.warn(ctx, plan.Warning)
		same = false
	}
	r.remark(same, plan.Hidden)
	return nil
}

// remark sets the message of the end where that is not the usual one.
func (r *pull) remark(same bool, hidden int) {
	message := ""
	if same {
		message = "no changes to sync"
	}
	if hidden > 0 {
		message = cmp.Or(message, r.progress.Outcome(nil).Message) + "; " + text.Plural(hidden, "hidden file") + " left out"
	}
	if message != "" {
		r.progress.SetFinalMessage(message)
	}
}
