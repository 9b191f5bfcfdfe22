package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"limpet/sync/api"
)

func TestJobTravels(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, t *Task) error {
			t.Progress.SetRefs("main", "aaa", "bbb")
			t.Progress.SetTotal(ctx, 2)
			t.Progress.Record(ctx, dashboard(Created, nil, nil))
			t.Progress.Record(ctx, dashboard(Updated, nil, errors.New("odd")))
			t.Log.Info("two files", "commit", "bbb")
			return nil
		})
		a := r.start("a", Options{}, w)
		settle()
		created := r.job("r1", "r1-sync")
		settle()
		rec := r.done("warning", "completed with warnings")
		if rec.UID != string(created.GetUID()) || rec.RefFrom != "aaa" || rec.RefTo != "bbb" || rec.HistoricJob != archivePosted || rec.Agent != "a" {
			t.Errorf("record %+v", rec)
		}
		if len(rec.Attempts) != 1 || rec.Attempts[0].N != 1 || rec.Labels[api.LabelClaim] != "" || rec.Labels["team"] != "ops" {
			t.Errorf("record %+v", rec)
		}
		h := r.model.all("historicjobs")[0]
		view, err := api.JobView(h)
		if err != nil {
			t.Fatal(err)
		}
		if view.Status.State != "warning" || view.Status.Finished == 0 || len(view.Status.Summary) != 1 || view.Status.Summary[0].Warning != 1 {
			t.Errorf("HistoricJob %v", h.Object)
		}
		if h.Object["spec"].(map[string]any)["unknown"] != "kept" {
			t.Error("the HistoricJob lost a member of the spec")
		}
		for _, typ := range []string{EventClaimed, EventApplied, EventRejected, EventCompleted} {
			if a.count(typ) != 1 {
				t.Errorf("%d events %s", a.count(typ), typ)
			}
		}
		// A quick job costs one claim, one HistoricJob, one delete.
		if n := r.model.writes(func(e entry) bool { return e.Agent == "a" }); n != 3 {
			t.Errorf("%d writes for a quick job", n)
		}
	})
}

func TestJobsOfBeforeTheStart(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.job("r1", "r1-sync")
		pass(time.Hour)
		r.start("a", Options{}, quick())
		settle()
		r.done("success", "")
	})
}
