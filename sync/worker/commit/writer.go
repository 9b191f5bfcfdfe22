// Package commit writes to Git for a job: its changes become one commit on top of a branch, and the
// host accepts the push only if the branch has not moved. If it has, the changes are computed again
// for the new tip.
//
// The hash of the commit is recorded before the push: a resumed job checks whether the branch
// contains it, so that a lost response or a lost agent causes no second commit. The time is
// recorded too, so that the same commit gets the same hash.
package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
)

// Writer writes the commits of an agent.
type Writer struct {
	Source checkout.Source
	Keys   auth.Source  // of the keys that sign; nil = none
	Store  *state.Store // what migrations have written
}

// Order describes the write of a job.
type Order struct {
	Ref     string // the branch to write to, created from that of the Repository if missing; "" = the latter
	Message string // of a commit whose job brings none
	// Changes computes the changes for the base of the commit, which is in the mirror. It is called
	// again when the branch moves and when the job is resumed, so it keeps what has to stay the same
	// in what is saved.
	Changes func(ctx context.Context, r *Run) (Changes, error)
}

// Changes are those of a commit.
type Changes struct {
	Edits    []Edit
	Exported []Exported // the objects in the files of a migration
	// Wrote has the sums of the files that migrations have written, with those of this commit; nil =
	// unchanged.
	Wrote map[uint64]uint64
}

// Edit is one change of a commit with its result. A file without a path is no change, and the
// result is only reported.
type Edit struct {
	File   git.Edit
	Result resources.Result
	// Others reports that an error of the result does not keep the other edits from being written.
	Others  bool
	Missing bool // the base does not have the path
}

// Begin returns the write of a job. An error names what forbids it.
func (w *Writer) Begin(t *jobs.Task, o Order) (*Run, error) {
	r := &Run{Task: t, writer: w, Order: o, Saved: &Saved{}}
	if err := r.check(); err != nil {
		return nil, err
	}
	var m mark
	if len(t.Mark) > 0 && json.Unmarshal(t.Mark, &m) == nil && m.Staged != nil {
		r.Saved = m.Staged
		t.Log.Info("resuming after an interruption", "step", "push", "commits", r.Saved.Commits, "ended", r.Saved.Ended)
	}
	return r, nil
}

// check validates the job. It needs no request.
func (r *Run) check() error {
	t := r.Task
	switch {
	case t.Repository.GitRef != "":
		return fmt.Errorf("repository %q has the annotation %s, so it is only read", t.Repo.GetName(), api.AnnoGitRef)
	case len(t.Repository.Spec.Workflows) == 0:
		return fmt.Errorf("repository %q has no spec.workflows, so it is only read; try: limpet repo set %s --workflows write --namespace %s",
			t.Repo.GetName(), t.Repo.GetName(), t.Namespace)
	case r.Order.Ref == "":
		return r.mayWrite("write")
	}
	return nil
}

// mayWrite returns an error unless the Repository permits a workflow: "write" to its own branch,
// "branch" to others.
func (r *Run) mayWrite(workflow string) error {
	if slices.Contains(r.Task.Repository.Spec.Workflows, workflow) {
		return nil
	}
	own := "its own branch"
	if workflow == "branch" {
		own = "other branches"
	}
	return fmt.Errorf("repository %q may not be written to on %s: spec.workflows lacks %q", r.Task.Repo.GetName(), own, workflow)
}
