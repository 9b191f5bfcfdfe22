package jobs

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
)

// revive puts an object back as it was, with its UID: an old page of a damaged
// file, or an old backup.
func (m *model) revive(resource string, obj *unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(call{Agent: "person", Verb: "create", Resource: resource, Name: obj.GetName()}, obj.GetNamespace(), obj, obj)
}

// TestEndedJobComesBack: whatever was salvaged of it, it is not run again and has
// one record. The HistoricJob is gone, which would tell the same.
func TestEndedJobComesBack(t *testing.T) {
	cases := map[string]struct {
		claimed bool        // the job as it was under the claim, else as it waited
		phase   state.Phase // of the claim that came back with it; "" = none has
		cleanup string
		within  time.Duration
	}{
		"as it waited":                     {within: time.Second},
		"as it waited, with its intent":    {phase: state.PhaseIntent, within: time.Second},
		"as it ran":                        {claimed: true, within: 6 * time.Minute},
		"as it ran, and is to be failed":   {claimed: true, cleanup: CleanupFail, within: 6 * time.Minute},
		"as it ran, with its claim":        {claimed: true, phase: state.PhaseHeld, within: time.Second},
		"as it ended, with its completion": {claimed: true, phase: state.PhaseCompleting, within: time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				waits := r.job("r1", "r1-sync")
				a := r.start("a1", Options{}, work(5*time.Second))
				pass(time.Second)
				runs, claims := r.model.get("jobs", "default", "r1-sync"), r.claims()
				pass(time.Minute)
				before := r.done("success", "")
				a.stop()

				old := waits
				if c.claimed {
					old = runs
				}
				r.model.revive("jobs", old)
				r.model.set(func() { clear(r.model.objects["historicjobs"]) })
				if c.phase != "" {
					claims[0].Phase = c.phase
					if err := r.store.PutClaim(context.Background(), claims[0]); err != nil {
						t.Fatal(err)
					}
				}
				w := quick()
				r.start("a2", Options{Cleanup: c.cleanup}, w)
				pass(c.within)
				rec := r.only()
				if left := r.model.all("jobs"); len(left) != 0 || len(r.claims()) != 0 || len(w.seen()) != 0 {
					t.Errorf("%d jobs left, claims %+v, runs %q", len(left), r.claims(), w.seen())
				}
				if rec.HistoricJob != archivePosted || !rec.Finished.Equal(before.Finished) || len(rec.Attempts) != 1 || len(r.model.all("historicjobs")) != 0 {
					t.Errorf("record %+v, before %+v", rec, before)
				}
			})
		})
	}
}
