package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"limpet/sync/auth"
	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
)

// How a job writes to Git: its changes become one commit on top of the branch, and the host accepts
// the push only if the branch has not moved. If it has, the changes are computed again for the new
// tip. The hash of the commit is recorded before the push: a resumed job checks whether the branch
// contains it, so that a lost response or a lost agent causes no second commit. The time is
// recorded too, so that the same commit gets the same hash.

// Write is the worker of an action that writes to Git.
type Write struct {
	*Pull
	keys   auth.Source // nil = none
	action string
	order  func(t *jobs.Task) (order, error)
}

var _ jobs.Worker = (*Write)(nil)

// NewWrites returns the workers of all actions that write to Git. p pulls what they push; keys may
// be nil.
func NewWrites(p *Pull, keys auth.Source) []*Write {
	return []*Write{NewDelete(p, keys), NewMove(p, keys), NewPush(p, keys), NewMigrate(p, keys), NewFixFolders(p, keys)}
}

// Action implements jobs.Worker.
func (w *Write) Action() string { return w.action }

// Ready implements jobs.Worker, by the rules of Pull.Ready.
func (w *Write) Ready(ctx context.Context, t jobs.Task) error {
	if t.Repo == nil {
		return nil
	}
	return w.checkCredentials(ctx, t)
}

// order describes the write of a job.
type order struct {
	ref     string // the branch to write to, created from that of the Repository if missing; "" = the latter
	message string // of a commit whose job brings none
	// edits computes the changes for the base of the commit, which is in the mirror. It is called
	// again when the branch moves and when the job is resumed, so it keeps what has to stay the same
	// in the note.
	edits func(ctx context.Context, r *staging) ([]edit, error)
	// then does what follows when the branch has the commit, or when there was nothing to commit.
	then func(ctx context.Context, r *staging) error
}

// edit is one change of a commit with its result. A file without a path is no change, and the
// result is only reported.
type edit struct {
	file   git.Edit
	result resources.Result
	// others reports that an error of the result does not keep the other edits from being written.
	others  bool
	missing bool // the base does not have the path
}

// staged is the state of the write of a job. It is saved with the resume mark.
type staged struct {
	When     int64     `json:"when"`               // of the commit, in seconds
	Paths    []string  `json:"paths"`              // that the job selects, those of resources included
	Commits  []string  `json:"commits,omitempty"`  // that may have been pushed
	Warnings []warning `json:"warnings,omitempty"` // about the changes
	Ended    bool      `json:"ended,omitempty"`    // nothing is left to push
	Hash     string    `json:"hash,omitempty"`     // of the commit in the branch; "" = there was nothing to commit
	Own      string    `json:"own,omitempty"`      // branch of the Repository
	// Exported are the objects in the commits of a migration, by hash.
	Exported map[string][]exported `json:"objects,omitempty"`
}

// warning is a result with a warning in a form that can be saved.
type warning struct {
	resources.Result
	Text string
}

// meant returns the paths whose objects may be deleted without more consent.
func (s *staged) meant() []string {
	if s == nil {
		return nil
	}
	return s.Paths
}

// holds records the exported objects in a commit. More than one commit may be on its way to the
// host.
func (s *staged) holds(hash string, objects []exported) {
	if len(objects) > 0 {
		if s.Exported == nil {
			s.Exported = map[string][]exported{}
		}
		s.Exported[hash] = objects
	}
}

// staging is one run of a job that writes.
type staging struct {
	*Write
	*jobs.Task
	order order
	note  *staged
	own   git.Ref // the branch of the Repository
	at    *checkout.Checkout
	base  git.Ref // the parent of the commit
	edits []edit  // of the last composition, with their results
	// exported are the objects in the last composition of a migration.
	exported []exported
	// wrote has the sums of the files that migrations have written, with those of the last
	// composition.
	wrote map[uint64]uint64
}

// begin returns the run of a job whose options are valid.
func (w *Write) begin(t *jobs.Task) (*staging, error) {
	if t.Repo == nil {
		return nil, fmt.Errorf("repository %q does not exist", t.Job.Spec.Repository)
	}
	o, err := w.order(t)
	r := &staging{Write: w, Task: t, order: o, note: &staged{}}
	return r, cmp.Or(err, r.check())
}

// Run implements jobs.Worker.
func (w *Write) Run(ctx context.Context, t *jobs.Task) error {
	r, err := w.begin(t)
	if err != nil {
		return err
	}
	t.Progress.StrictMaxErrors(1)
	var m mark
	if len(r.Mark) > 0 && json.Unmarshal(r.Mark, &m) == nil && m.Staged != nil {
		r.note = m.Staged
		r.Log.Info("resuming after an interruption", "step", "push", "commits", r.note.Commits, "ended", r.note.Ended)
	}
	err = r.stage(ctx)
	if err == nil {
		return r.order.then(ctx, r)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return passing(err)
}

// keep saves the state of the write.
func (r *staging) keep(ctx context.Context) error {
	return r.Progress.Mark(ctx, mark{Staged: r.note})
}

// pushTries is the maximum number of attempts to push a commit while the branch moves.
const pushTries = 4

// stage brings the commit into its branch, exactly once.
func (r *staging) stage(ctx context.Context) error {
	if r.note.Ended {
		return nil
	}
	var err error
	if r.at, err = r.checkout(ctx); err != nil {
		return err
	}
	r.note.When = cmp.Or(r.note.When, r.o.Client.Now().Unix())
	for range pushTries {
		err = r.attempt(ctx)
		if kind := git.KindOf(err); kind != git.Overtaken && kind != git.Moved {
			break
		}
		r.Log.Info("branch moved, retrying the commit", "step", "push", "err", err)
	}
	return err
}

// checkout opens the Git side of the Repository, without mirrors.
func (r *staging) checkout(ctx context.Context) (*checkout.Checkout, error) {
	return r.source.Open(ctx, r.Repo, r.Repository, checkout.Options{Progress: r.Progress, Meter: r.Progress.Transfer, Log: r.Log})
}

// attempt makes the commit on top of the current branch and pushes it.
func (r *staging) attempt(ctx context.Context) error {
	r.Progress.SetMessage(ctx, "fetch the branch")
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
	made, err := r.compose(ctx)
	if err == nil && r.wrote != nil { // before the push, so that a later migration knows its files
		err = r.o.Store.PutVersions(ctx, r.Namespace, r.Repo.GetName()+wroteBy, string(r.Repo.GetUID()), r.wrote)
	}
	if err != nil {
		return err
	}
	if made.Empty() {
		r.note.holds("", r.exported)
		return r.ended(ctx, "")
	}
	commit, err := r.commit(ctx, made)
	if err != nil {
		return err
	}
	if err := failpoint.Pass(failpoint.Composed); err != nil {
		return err
	}
	if !slices.Contains(r.note.Commits, commit.Hash) {
		r.note.Commits = append(r.note.Commits, commit.Hash)
	}
	r.note.holds(commit.Hash, r.exported)
	if err := r.keep(ctx); err != nil {
		return err
	}
	if err := failpoint.Pass(failpoint.Noted); err != nil {
		return err
	}
	r.Progress.SetMessage(ctx, "push "+checkout.ShortHash(commit.Hash))
	if err := r.o.Git.Push(ctx, r.at.Remote, r.branch(), r.old(), commit); err != nil {
		return err
	}
	if err := failpoint.Pass(failpoint.Pushed); err != nil {
		return err
	}
	r.Log.Info("pushed", "step", "push", "branch", r.branch(), "commit", commit.Hash)
	return r.ended(ctx, commit.Hash)
}

func (r *staging) ended(ctx context.Context, hash string) error {
	r.note.Ended, r.note.Hash = true, hash
	maps.DeleteFunc(r.note.Exported, func(other string, _ []exported) bool { return other != hash })
	if hash != "" {
		r.Progress.SetRefs(cmp.Or(r.order.ref, r.base.Branch()), r.base.Hash, hash)
	}
	if err := r.keep(ctx); err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Published)
}

// branch returns the full name of the target branch.
func (r *staging) branch() string {
	if r.order.ref != "" {
		return "refs/heads/" + r.order.ref
	}
	return r.base.Name
}

// old returns the tip of the target branch; "" if the push creates the branch.
func (r *staging) old() string {
	if r.branch() != r.base.Name {
		return ""
	}
	return r.base.Hash
}

// fetchBase resolves the target branch, or the branch of the Repository if the push creates the
// target, and fetches its commit. A Git repository without any branch has none.
func (r *staging) fetchBase(ctx context.Context) (err error) {
	if r.own, err = r.at.Resolve(ctx, r.at.Selector); git.KindOf(err) == git.Empty {
		r.own, err = git.Ref{Name: "refs/heads/" + cmp.Or(r.at.Selector.Branch, "main")}, nil
	}
	if err != nil {
		return err
	}
	r.base, r.note.Own = r.own, r.own.Branch()
	workflow := "write"
	if ref := r.order.ref; ref != "" && ref != r.own.Branch() {
		workflow = "branch"
		there, err := r.at.Resolve(ctx, gitref.Branch(ref))
		if err == nil {
			r.base = there
		} else if kind := git.KindOf(err); kind != git.BranchNotFound && kind != git.Empty {
			return err
		}
	}
	if err := r.mayWrite(workflow); err != nil {
		return err
	}
	if r.base.Hash == "" {
		return nil
	}
	if _, err = r.o.Git.Fetch(ctx, r.at.Remote, r.base); err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Fetched)
}

// arrived reports whether the branch contains a commit that this job has pushed.
func (r *staging) arrived(ctx context.Context) (bool, error) {
	if r.old() == "" {
		return false, nil
	}
	for _, hash := range r.note.Commits {
		there, err := r.o.Git.Contains(ctx, r.at.Remote, r.base, hash)
		if err != nil {
			return false, err
		}
		if there {
			r.Log.Info("branch already contains the commit", "step", "push", "commit", hash)
			return true, r.ended(ctx, hash)
		}
	}
	return false, nil
}

// trusted returns an error if a pull would reject the base commit: our signature on top of it would
// make pulls accept it.
func (r *staging) trusted(ctx context.Context) error {
	if err := r.at.ReadTrust(ctx); err != nil || r.base.Hash == "" {
		return err
	}
	_, err := r.at.Verify(ctx, r.base)
	return err
}

// compose makes the changes in memory, and records the result of each. It writes nothing.
func (r *staging) compose(ctx context.Context) (*git.Composition, error) {
	var err error
	if r.edits, err = r.order.edits(ctx, r); err != nil {
		return nil, err
	}
	var files []git.Edit
	for _, e := range r.edits {
		if e.file.Path != "" {
			files = append(files, e.file)
		}
	}
	made, err := r.o.Git.Compose(ctx, r.at.Remote, r.base.Hash, files)
	if err != nil {
		return nil, err
	}
	r.Progress.ResetResults()
	r.Progress.SetTotal(ctx, len(r.edits))
	r.note.Warnings = nil
	outcomes, limit := made.Outcomes, 1
	for i := range r.edits {
		e := &r.edits[i]
		if e.file.Path != "" {
			if err := outcomes[0]; errors.Is(err, fs.ErrNotExist) {
				e.missing, e.result.Warning = true, fmt.Errorf("%s is not in the branch", e.result.Path)
			} else if err != nil {
				e.result.Err = fmt.Errorf("%s %s: %w", verbs[e.result.Action], e.result.Path, err)
			}
			outcomes, e.file.Blob = outcomes[1:], nil // the composition alone holds it
		}
		if w := e.result.Warning; w != nil {
			e.result.Warning = nil
			r.note.Warnings = append(r.note.Warnings, warning{e.result, w.Error()})
			e.result.Warning = w
		}
		if e.others {
			limit++
			r.Progress.StrictMaxErrors(limit)
		}
		r.Progress.Record(ctx, e.result)
		if err := r.Progress.TooManyErrors(); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// verbs begin the errors of actions.
var verbs = map[resources.Action]string{resources.Created: "write", resources.Updated: "write", resources.Deleted: "delete",
	resources.Renamed: "move"}

// link sets the pages of the branch.
func (r *staging) link() {
	r.Progress.SetURLs(refURLs(r.Repository, r.note.Own, cmp.Or(r.order.ref, r.note.Own)))
	if r.note.Hash == "" {
		r.Progress.SetFinalMessage("nothing to commit")
	}
}

// pullAfter pulls the changes of a commit on the branch of the Repository; another branch is only
// linked. The results are those of the pull, and the warnings about the changes.
func pullAfter(ctx context.Context, r *staging) error {
	if r.order.ref != "" {
		r.link()
		return nil
	}
	r.Progress.ResetResults()
	for _, w := range r.note.Warnings {
		w.Result.Warning = errors.New(w.Text)
		r.Progress.Record(ctx, w.Result)
	}
	if !r.Repository.Spec.Sync.Enabled {
		r.Progress.SetFinalMessage("committed; sync is not enabled, so nothing was pulled")
		return nil
	}
	err := r.Pull.run(ctx, r.Task, r.note)
	if err == nil && r.note.Hash == "" {
		r.Progress.SetFinalMessage("nothing to commit")
	}
	return err
}
