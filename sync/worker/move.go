package worker

import (
	"context"
	"fmt"
	"strings"

	"limpet/sync/api/repopath"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/commit"
)

// moveOrder moves files and directories to another directory of a Repository, where they keep their
// names.
func moveOrder(w *Write, t *jobs.Task) (order, error) {
	o := t.Job.Spec.Move
	if err := checkSelection(t, o); err != nil {
		return order{}, err
	}
	target := strings.TrimPrefix(o.TargetPath, "/")
	if o.TargetPath == "" || !repopath.IsDir(target) {
		return order{}, fmt.Errorf("spec.move.targetPath is %q: it has to be a directory, with a slash at its end", o.TargetPath)
	}
	if err := repopath.CheckPath(target); err != nil {
		return order{}, fmt.Errorf("spec.move.targetPath: %w", err)
	}
	to := func(path string) string {
		if repopath.IsDir(path) {
			return target + repopath.Base(path) + "/"
		}
		return target + repopath.Base(path)
	}
	changes := func(ctx context.Context, r *commit.Run) (commit.Changes, error) {
		return w.selected(ctx, r, o, resources.Renamed, to)
	}
	return order{
		Order: commit.Order{Ref: o.Ref, Message: "Move files from Grafana " + t.Name, Changes: changes},
		then:  w.pullAfter,
	}, nil
}
