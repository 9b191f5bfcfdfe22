package worker

import (
	"context"

	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/commit"
)

// deleteOrder removes files and directories from the branch of a Repository or from another one.
func deleteOrder(w *Write, t *jobs.Task) (order, error) {
	o := t.Job.Spec.Delete
	if err := checkSelection(t, o); err != nil {
		return order{}, err
	}
	changes := func(ctx context.Context, r *commit.Run) (commit.Changes, error) {
		return w.selected(ctx, r, o, resources.Deleted, nil)
	}
	return order{
		Order: commit.Order{Ref: o.Ref, Message: "Delete from Grafana " + t.Name, Changes: changes},
		then:  w.pullAfter,
	}, nil
}
