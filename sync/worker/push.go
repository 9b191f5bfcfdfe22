package worker

import (
	"limpet/sync/jobs"
)

// pushOrder writes copies of the folders and dashboards without a manager, or of some dashboards,
// to the branch of a Repository or to another one. Nothing is pulled.
func pushOrder(w *Write, t *jobs.Task) (order, error) {
	o, err := w.exportOrder(t, t.Job.Spec.Push, false)
	return order{Order: o, then: linkOnly}, err
}
