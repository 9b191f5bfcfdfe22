package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/failpoint"
	"limpet/sync/garbage"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/commit"
	"limpet/sync/worker/target"
)

// mark is the resume mark of a job. For a pull it is a hint: a resumed pull compares with the
// server, and does not repeat writes that are done.
type mark struct {
	Ref    string        `json:"ref"`
	Staged *commit.Saved `json:"staged,omitempty"` // of a job that writes to Git
}

// syncObjects makes the objects of the API equal to the commit.
func (r *pull) syncObjects(ctx context.Context) error {
	if err := r.reachObjects(ctx); err != nil {
		return err
	}
	p, err := r.plan(ctx)
	for err == nil && p.refused == nil && p.plan != nil {
		if !r.partial && p.plan.Empty() {
			r.progress.SetFinalMessage("no changes to sync")
			return nil
		}
		err = r.apply(ctx, p.plan)
		if err != nil || !r.partial || r.progress.Outcome(nil).State == api.StateError {
			return err
		}
		path := r.unread.usedAgain()
		if path == "" {
			return nil
		}
		r.log.Info("a file can be used again, pulling in full", "step", "plan", "path", path)
		r.partial = false
		p, err = r.planAll(ctx)
	}
	return cmp.Or(err, p.refused)
}

// reachObjects finds the API.
func (r *pull) reachObjects(ctx context.Context) (err error) {
	if r.objects, err = r.worker.objects(ctx, r.repo, r.content, r.progress, r.terms.last); err == nil {
		r.objects.Spec.TakeOver = r.terms.after.TakeOver()
		r.objects.Prepared = r.prepared
	}
	return err
}

// prepare returns what judges the files of a first pull while they come, nil where it would be in
// vain: objects that are not stored on this host are read once in any case.
func (r *pull) prepare() *target.Prepared {
	if r.directory != nil || r.worker.o.Space == nil || r.status.LastRef != "" || checkout.Submodules(r.repo.object) {
		return nil
	}
	return target.Prepare(r.worker.o.Store, resources.File{
		Repository: r.repo.name(), Namespace: r.repo.namespace(), Kinds: r.worker.o.Kinds,
	})
}

// treeOf returns a tree in the form of package resources.
func treeOf(t git.Tree) resources.Tree {
	tree := resources.Tree{Dirs: t.Dirs}
	for _, f := range t.Files {
		tree.Files = append(tree.Files, resources.TreeFile{Path: f.Path, Hash: f.Hash})
	}
	for _, f := range t.Refused {
		tree.Refused = append(tree.Refused, f.Path)
	}
	return tree
}

// planned is the plan of a pull; without a plan there is nothing to do. refused is why it must not
// be carried out.
type planned struct {
	plan    *target.ObjectsPlan
	refused error
}

// plan plans an incremental pull, or a full one where that is not possible.
func (r *pull) plan(ctx context.Context) (planned, error) {
	if r.partial {
		p, sufficient, err := r.planChanges(ctx)
		if sufficient || err != nil {
			return p, err
		}
		r.partial = false
	}
	return r.planAll(ctx)
}

func (r *pull) planAll(ctx context.Context) (p planned, err error) {
	t, err := r.tree(ctx)
	if err != nil {
		return p, err
	}
	tree, began := treeOf(t), time.Now()
	r.progress.SetMessage(ctx, "compare with the server")
	live, err := r.objects.Live(ctx, r.terms.corrects)
	if err != nil {
		return p, err
	}
	if p.plan, err = r.objects.Full(ctx, tree, live); err != nil {
		return p, err
	}
	r.counted = p.plan.Counts
	if r.terms.corrects {
		if err := r.rewriteDrifted(ctx, p.plan.Plan); err != nil {
			return p, err
		}
	}
	p.refused = r.terms.guard(r.repo, p.plan.Deletions(r.terms.after.Selected()...), p.plan.Managed())
	if p.refused == nil {
		r.progress.Phase(jobs.SyncFull, "compare", time.Since(began))
	}
	return p, nil
}

// planChanges plans the changes since the last commit. They are not sufficient also where the
// commits cannot be compared.
func (r *pull) planChanges(ctx context.Context) (p planned, sufficient bool, err error) {
	began, last := time.Now(), r.status.LastRef
	diff, err := r.worker.o.Source.Git.Changes(ctx, r.at.Remote, last, r.at.Ref.Hash, r.at.Dir)
	switch {
	case ctx.Err() != nil:
		return p, false, err
	case err != nil:
		r.log.Info("compare commits failed, pulling in full", "step", "plan", "ref", checkout.ShortHash(last), "err", err)
		return p, false, nil
	}
	if why := fullPullReason(diff.Files, r.worker.o.MaxIncremental, r.unread.before.Files); why != "" {
		r.log.Info("changes are not sufficient, pulling in full", "step", "plan", "reason", why)
		return p, false, nil
	}
	// An entry that was left out has kept what was made from its path, and may be all of a directory.
	if diff.Unrefused != "" {
		r.log.Info("an entry that was left out is gone, pulling in full", "step", "plan", "path", diff.Unrefused)
		return p, false, nil
	}
	tree, folders, err := r.surroundings(ctx, diff)
	if err != nil {
		return p, false, err
	}
	files := r.unread.again(diff.Files)
	if len(files) == 0 && r.unread.before.Empty() && !diff.Dirs {
		r.progress.SetFinalMessage("no changes detected between commits")
		return p, true, nil
	}
	r.progress.SetMessage(ctx, "incremental comparison")
	r.counted = r.status.Stats
	if p.plan, err = r.objects.Increment(ctx, tree, folders, fileChanges(files), r.counted); err != nil {
		return p, false, err
	}
	n := p.plan.Deletions()
	if n >= guardAll && n <= guardFew && int64(n)+1 >= r.counted.Total() { // with a root folder
		r.log.Info("all objects would go, pulling in full", "step", "plan")
		return p, false, nil
	}
	uncounted := r.counted == nil && r.objects.Max > 0
	if n > guardFew || uncounted {
		live, err := r.objects.Live(ctx, false)
		if err != nil {
			return p, false, err
		}
		r.counted = target.Count(live)
		p.plan.Counts = r.counted
		p.refused = r.terms.guard(r.repo, n, len(live))
	}
	if p.refused == nil {
		r.progress.Phase(jobs.SyncIncremental, "compare", time.Since(began))
	}
	return p, true, nil
}

// surroundings returns the tree and the live folders that changes are planned by: those of the
// directories that lead to the changed files, where no other directory can have to do with them.
func (r *pull) surroundings(
	ctx context.Context, diff git.Comparison,
) (tree resources.Tree, folders []resources.Item, err error) {
	near := r.unread.before.Empty() && !diff.Dirs && diff.Refused == ""
	var paths []string
	for _, c := range diff.Files {
		near = near && !repopath.IsFolderFile(c.Path) && !repopath.IsFolderFile(c.From)
		paths = append(paths, c.Path, c.From)
	}
	if near {
		t, err := r.content.Near(ctx, paths)
		if err != nil {
			return tree, nil, err
		}
		tree = treeOf(t)
		tree.Near = true
		folders, known, err := r.objects.Near(ctx, tree)
		if known || err != nil {
			r.see(ctx, t)
			return tree, folders, err
		}
	}
	t, err := r.tree(ctx)
	if err == nil {
		folders, err = r.objects.API.ManagedFolders(ctx, r.repo.name())
	}
	return treeOf(t), folders, err
}

// fileChanges returns the differences of two commits in the form of package resources.
func fileChanges(diff []git.Change) []resources.FileChange {
	actions := map[string]resources.Action{
		git.ChangeAdded: resources.Created, git.ChangeModified: resources.Updated,
		git.ChangeDeleted: resources.Deleted, git.ChangeRenamed: resources.Renamed,
	}
	out := make([]resources.FileChange, len(diff))
	for i, d := range diff {
		out[i] = resources.FileChange{Action: actions[d.Type], Path: d.Path, From: d.From, Hash: d.Hash, FromHash: d.FromHash}
	}
	return out
}

// fullPullReason returns the reason for which these changes require a full pull; "" for none. most
// is the maximum number of changes of an incremental pull; 0 = no limit. unread are the files that
// the last pull could not use: the object of one is that of an earlier commit.
func fullPullReason(diff []git.Change, most int, unread []state.UnreadFile) string {
	if most > 0 && len(diff) > most {
		return fmt.Sprintf("%d changes are more than %d", len(diff), most)
	}
	var gone []string
	for _, c := range diff {
		if slices.ContainsFunc(unread, func(f state.UnreadFile) bool { return f.Path == c.Path || f.Path == c.From }) {
			return fmt.Sprintf("file %q could not be used before", cmp.Or(c.From, c.Path))
		}
		switch c.Type {
		case git.ChangeDeleted:
			gone = append(gone, c.Path)
		case git.ChangeRenamed:
			gone = append(gone, c.From)
		}
	}
	if dir, is := resources.LostMarker(gone); is {
		return fmt.Sprintf("directory %q lost the file that stands for it", "/"+dir)
	}
	return ""
}

// apply carries the plan out and counts the objects of the repository afterwards.
func (r *pull) apply(ctx context.Context, plan *target.ObjectsPlan) error {
	if err := failpoint.Pass(failpoint.Planned); err != nil {
		return err
	}
	if err := r.fits(ctx, plan.WriteFiles); err != nil {
		return err
	}
	plan.Fetch(ctx)
	// An attempt after a crash has to know that the target may be between two commits.
	if err := r.progress.Mark(ctx, mark{Ref: r.at.Ref.Hash, Staged: r.terms.after}); err != nil {
		return err
	}
	if err := r.status.Writing(ctx); err != nil {
		return err
	}
	r.applying = true
	defer garbage.Leave(garbage.Writes)()
	counts, phases, err := plan.Apply(ctx, &recorder{unread: r.unread})
	r.counted = counts
	var writes, cleanup time.Duration
	for _, phase := range phases {
		switch {
		case !r.partial:
			r.progress.Phase(jobs.SyncFull, phase.Name, phase.Took)
		case phase.Name == "old_folder_cleanup":
			cleanup = phase.Took
		default:
			writes += phase.Took
		}
	}
	if r.partial {
		r.progress.Phase(jobs.SyncIncremental, "apply", writes)
		r.progress.Phase(jobs.SyncIncremental, "cleanup", cleanup)
	}
	return err
}

// sampled is how many new files tell the size of all.
const sampled = 32

// fits returns an error if the objects of new files do not fit.
func (r *pull) fits(ctx context.Context, changes []resources.Change) error {
	if r.worker.o.Space == nil {
		return nil
	}
	var created []resources.Change
	for _, c := range changes {
		if c.Action == resources.Created && c.Existing == nil {
			created = append(created, c)
		}
	}
	err := r.worker.o.Space.SpaceFor(ctx, len(created), func(ctx context.Context) (sample [][]byte, err error) {
		for i := 0; i < len(created); i += 1 + len(created)/sampled {
			data, err := r.content.Read(ctx, created[i].Hash)
			if err != nil && !resources.IsWarning(err) {
				return nil, err
			}
			sample = append(sample, data)
		}
		return sample, nil
	})
	if err != nil {
		return fmt.Errorf("%w; nothing was changed; start the agent with a larger --state-max-size", err)
	}
	return nil
}

// recorder is the unread list as the recorder of a plan, with the failpoint of each change.
type recorder struct {
	unread *unread
	lost   atomic.Pointer[error]
}

// Record implements resources.Recorder.
func (r *recorder) Record(ctx context.Context, res resources.Result) {
	r.unread.Record(ctx, res)
	if err := failpoint.Pass(failpoint.Applying); err != nil {
		r.lost.Store(&err)
	}
}

// TooManyErrors implements resources.Recorder.
func (r *recorder) TooManyErrors() error {
	if err := r.lost.Load(); err != nil {
		return *err
	}
	return r.unread.TooManyErrors()
}
