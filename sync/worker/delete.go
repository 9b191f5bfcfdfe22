package worker

import (
	"context"

	"limpet/sync/git"
	"limpet/sync/jobs"
)

// Delete takes files and directories out of the branch of a Repository, or of another
// branch.
type Delete struct{ writer }

var _ jobs.Worker = (*Delete)(nil)

// NewDelete returns the worker of delete jobs. p pulls what it has changed; keys may be
// nil.
func NewDelete(p *Pull, keys *SigningKeys) *Delete { return &Delete{writer{p, keys}} }

// Action implements jobs.Worker.
func (d *Delete) Action() string { return "delete" }

// Run implements jobs.Worker.
func (d *Delete) Run(ctx context.Context, t *jobs.Task) error {
	return d.write(ctx, t, order{SelectionOptions: t.Job.Spec.Delete, action: jobs.Deleted, verb: "delete", message: "Delete from Grafana",
		edit: func(dir, path string) git.Edit { return git.Edit{Path: within(dir, path)} }})
}

// within is a path below the directory of a Repository, as one from the root of its Git
// repository.
func within(dir, path string) string {
	if dir == "" {
		return path
	}
	return dir + "/" + path
}
