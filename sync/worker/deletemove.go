package worker

import (
	"context"
	"fmt"
	"strings"

	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/jobs"
)

// Delete removes files and directories from the branch of a Repository, or from another
// branch.
type Delete struct{ writer }

var _ jobs.Worker = (*Delete)(nil)

// NewDelete returns the worker of delete jobs. p pulls the changes afterwards; keys may
// be nil.
func NewDelete(p *Pull, keys *SigningKeys) *Delete { return &Delete{writer{p, keys}} }

// Action implements jobs.Worker.
func (d *Delete) Action() string { return "delete" }

// Run implements jobs.Worker.
func (d *Delete) Run(ctx context.Context, t *jobs.Task) error {
	return d.write(ctx, t, order{SelectionOptions: t.Job.Spec.Delete, action: jobs.Deleted, verb: "delete", message: "Delete from Grafana",
		edit: func(dir, path string) git.Edit { return git.Edit{Path: within(dir, path)} }})
}

// within converts a path relative to the directory of a Repository to one relative to
// the root of its Git repository.
func within(dir, path string) string {
	if dir == "" {
		return path
	}
	return dir + "/" + path
}

// Move moves files and directories to another directory of a Repository and keeps their
// names.
type Move struct{ writer }

var _ jobs.Worker = (*Move)(nil)

// NewMove returns the worker of move jobs. p pulls the changes afterwards; keys may be
// nil.
func NewMove(p *Pull, keys *SigningKeys) *Move { return &Move{writer{p, keys}} }

// Action implements jobs.Worker.
func (m *Move) Action() string { return "move" }

// Run implements jobs.Worker.
func (m *Move) Run(ctx context.Context, t *jobs.Task) error {
	o := t.Job.Spec.Move
	target := ""
	if o != nil {
		target = strings.TrimPrefix(o.TargetPath, "/")
		if o.TargetPath == "" || !repopath.IsDir(target) {
			return fmt.Errorf("spec.move.targetPath is %q: it has to be a directory, with a slash at its end", o.TargetPath)
		}
		if err := repopath.CheckPath(target); err != nil {
			return fmt.Errorf("spec.move.targetPath: %w", err)
		}
	}
	return m.write(ctx, t, order{SelectionOptions: o, action: jobs.Renamed, verb: "move", message: "Move files from Grafana",
		edit: func(dir, path string) git.Edit {
			to := target + repopath.Base(path)
			if repopath.IsDir(path) {
				to += "/"
			}
			return git.Edit{Path: within(dir, path), To: within(dir, to)}
		}})
}
