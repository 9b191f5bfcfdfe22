package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
)

// WroteBy follows the name of a Repository in the key of what migrations have written.
const WroteBy = "/migrated"

// Run is one run of a job that writes: an order that is carried out.
type Run struct {
	Order    Order
	Task     *jobs.Task
	Saved    *Saved
	Own      git.Ref // the branch of the Repository
	Base     git.Ref // the parent of the commit
	Checkout *checkout.Checkout
	Edits    []Edit // of the last composition, with their results

	writer *Writer
}

// pushTries is the maximum number of attempts to push a commit while the branch moves.
const pushTries = 4

// Push brings the commit into its branch, exactly once.
func (r *Run) Push(ctx context.Context) error {
	if r.Saved.Ended {
		return nil
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	r.Saved.When = cmp.Or(r.Saved.When, r.writer.Source.Now().Unix())
	var err error
	for range pushTries {
		err = r.attempt(ctx)
		if kind := git.KindOf(err); kind != git.Overtaken && kind != git.Moved {
			break
		}
		r.Task.Log.Info("branch moved, retrying the commit", "step", "push", "err", err)
	}
	return err
}

// open opens the Git side of the Repository, without mirrors.
func (r *Run) open(ctx context.Context) (err error) {
	t := r.Task
	r.Checkout, err = r.writer.Source.Open(ctx, t.Repo, t.Repository,
		checkout.Options{Progress: t.Progress, Meter: t.Progress.Transfer, Log: t.Log})
	return err
}

// attempt makes the commit on top of the current branch and pushes it.
func (r *Run) attempt(ctx context.Context) error {
	progress := r.Task.Progress
	progress.SetMessage(ctx, "fetch the branch")
	if err := r.fetchBase(ctx); err != nil {
		return err
	}
	arrived, err := r.arrived(ctx)
	if arrived || err != nil {
		return err
	}
	if err := r.trusted(ctx); err != nil {
		return err
	}
	changes, made, err := r.compose(ctx)
	if err == nil && changes.Wrote != nil { // before the push, so that a later migration knows its files
		key := r.Task.Repo.GetName() + WroteBy
		err = r.writer.Store.PutVersions(ctx, r.Task.Namespace, key, string(r.Task.Repo.GetUID()), changes.Wrote)
	}
	if err != nil {
		return err
	}
	if made.Empty() {
		r.Saved.holds("", changes.Exported)
		return r.ended(ctx, "")
	}
	commit, err := r.newCommit(ctx, made)
	if err != nil {
		return err
	}
	if err := failpoint.Pass(failpoint.Composed); err != nil {
		return err
	}
	if !slices.Contains(r.Saved.Commits, commit.Hash) {
		r.Saved.Commits = append(r.Saved.Commits, commit.Hash)
	}
	r.Saved.holds(commit.Hash, changes.Exported)
	if err := r.save(ctx); err != nil {
		return err
	}
	if err := failpoint.Pass(failpoint.Noted); err != nil {
		return err
	}
	progress.SetMessage(ctx, "push "+checkout.ShortHash(commit.Hash))
	if err := r.writer.Source.Git.Push(ctx, r.Checkout.Remote, r.branch(), r.old(), commit); err != nil {
		return err
	}
	if err := failpoint.Pass(failpoint.Pushed); err != nil {
		return err
	}
	r.Task.Log.Info("pushed", "step", "push", "branch", r.branch(), "commit", commit.Hash)
	return r.ended(ctx, commit.Hash)
}

// save saves the state of the write.
func (r *Run) save(ctx context.Context) error {
	return r.Task.Progress.Mark(ctx, mark{Staged: r.Saved})
}

func (r *Run) ended(ctx context.Context, hash string) error {
	r.Saved.Ended = true
	r.Saved.Hash = hash
	maps.DeleteFunc(r.Saved.Objects, func(other string, _ []Exported) bool { return other != hash })
	if hash != "" {
		r.Task.Progress.SetRefs(cmp.Or(r.Order.Ref, r.Base.Branch()), r.Base.Hash, hash)
	}
	if err := r.save(ctx); err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Published)
}

// branch returns the full name of the target branch.
func (r *Run) branch() string {
	if r.Order.Ref != "" {
		return "refs/heads/" + r.Order.Ref
	}
	return r.Base.Name
}

// old returns the tip of the target branch; "" if the push creates the branch.
func (r *Run) old() string {
	if r.branch() != r.Base.Name {
		return ""
	}
	return r.Base.Hash
}

// fetchBase resolves the target branch, or the branch of the Repository if the push creates the
// target, and fetches its commit. A Git repository without any branch has none.
func (r *Run) fetchBase(ctx context.Context) (err error) {
	at := r.Checkout
	if r.Own, err = at.Resolve(ctx, at.Selector); git.KindOf(err) == git.Empty {
		r.Own, err = git.Ref{Name: "refs/heads/" + cmp.Or(at.Selector.Branch, "main")}, nil
	}
	if err != nil {
		return err
	}
	r.Base = r.Own
	r.Saved.Own = r.Own.Branch()
	workflow := "write"
	if ref := r.Order.Ref; ref != "" && ref != r.Own.Branch() {
		workflow = "branch"
		there, err := at.Resolve(ctx, gitref.Branch(ref))
		if err == nil {
			r.Base = there
		} else if kind := git.KindOf(err); kind != git.BranchNotFound && kind != git.Empty {
			return err
		}
	}
	if err := r.mayWrite(workflow); err != nil {
		return err
	}
	if r.Base.Hash == "" {
		return nil
	}
	if _, err = r.writer.Source.Git.Fetch(ctx, at.Remote, r.Base); err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Fetched)
}

// arrived reports whether the branch contains a commit that this job has pushed.
func (r *Run) arrived(ctx context.Context) (bool, error) {
	if r.old() == "" {
		return false, nil
	}
	for _, hash := range r.Saved.Commits {
		there, err := r.writer.Source.Git.Contains(ctx, r.Checkout.Remote, r.Base, hash)
		if err != nil {
			return false, err
		}
		if there {
			r.Task.Log.Info("branch already contains the commit", "step", "push", "commit", hash)
			return true, r.ended(ctx, hash)
		}
	}
	return false, nil
}

// trusted returns an error if a pull would reject the base commit: our signature on top of it would
// make pulls accept it.
func (r *Run) trusted(ctx context.Context) error {
	if err := r.Checkout.ReadTrust(ctx); err != nil || r.Base.Hash == "" {
		return err
	}
	_, err := r.Checkout.Verify(ctx, r.Base)
	return err
}

// Plan makes the changes in memory on top of the branch, and records the result of each.
func (r *Run) Plan(ctx context.Context) (*git.Composition, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if err := r.fetchBase(ctx); err != nil {
		return nil, err
	}
	if err := r.trusted(ctx); err != nil {
		return nil, err
	}
	_, made, err := r.compose(ctx)
	return made, err
}

// compose makes the changes in memory, and records the result of each. It writes nothing.
func (r *Run) compose(ctx context.Context) (Changes, *git.Composition, error) {
	changes, err := r.Order.Changes(ctx, r)
	r.Edits = changes.Edits
	if err != nil {
		return changes, nil, err
	}
	var files []git.Edit
	for _, e := range r.Edits {
		if e.File.Path != "" {
			files = append(files, e.File)
		}
	}
	made, err := r.writer.Source.Git.Compose(ctx, r.Checkout.Remote, r.Base.Hash, files)
	if err != nil {
		return changes, nil, err
	}
	return changes, made, r.record(ctx, made.Outcomes)
}

// record records the result of each edit. outcomes are those of the edits with a file.
func (r *Run) record(ctx context.Context, outcomes []error) error {
	progress := r.Task.Progress
	progress.ResetResults()
	progress.SetTotal(ctx, len(r.Edits))
	r.Saved.Warnings = nil
	limit := 1
	for i := range r.Edits {
		e := &r.Edits[i]
		if e.File.Path != "" {
			if err := outcomes[0]; errors.Is(err, fs.ErrNotExist) {
				e.Missing = true
				e.Result.Warning = fmt.Errorf("%s is not in the branch", e.Result.Path)
			} else if err != nil {
				e.Result.Err = fmt.Errorf("%s %s: %w", verbs[e.Result.Action], e.Result.Path, err)
			}
			outcomes = outcomes[1:]
			e.File.Blob = nil // the composition alone holds it
		}
		if w := e.Result.Warning; w != nil {
			e.Result.Warning = nil
			r.Saved.Warnings = append(r.Saved.Warnings, Warning{e.Result, w.Error()})
			e.Result.Warning = w
		}
		if e.Others {
			limit++
			progress.StrictMaxErrors(limit)
		}
		progress.Record(ctx, e.Result)
		if err := progress.TooManyErrors(); err != nil {
			return err
		}
	}
	return nil
}

// verbs begin the errors of actions.
var verbs = map[resources.Action]string{
	resources.Created: "write",
	resources.Updated: "write",
	resources.Deleted: "delete",
	resources.Renamed: "move",
}
