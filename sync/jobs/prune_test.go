package jobs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
)

// old makes a HistoricJob and a local record that finished some time ago.
func (r *rig) old(name string, age time.Duration) {
	r.t.Helper()
	finished := r.model.now().Add(-age)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "HistoricJob",
		"status": map[string]any{"state": "success", "finished": finished.UnixMilli()}}}
	u.SetName(name)
	r.model.create("historicjobs", "default", u)
	if err := r.store.PutRecord(context.Background(), state.Record{UID: name, Namespace: "default", Name: name, State: "success", Finished: finished}); err != nil {
		r.t.Fatal(err)
	}
}

func TestPrune(t *testing.T) {
	hour := time.Hour
	cases := []struct {
		name          string
		o             Options
		after         time.Duration
		local, remote string // what is left of ages 0 h to 5 h
	}{
		{"no limits", Options{}, 24 * hour, "[0 1 2 3 4 5]", "[0 1 2 3 4 5]"},
		{"expiration for both", Options{HistoryExpiration: 2*hour + 30*time.Minute}, time.Minute, "[0 1 2]", "[0 1 2]"},
		{"expiration for the local one alone", Options{LocalHistory: 2*hour + 30*time.Minute}, time.Minute, "[0 1 2]", "[0 1 2 3 4 5]"},
		{"two expirations", Options{HistoryExpiration: 30 * time.Minute, LocalHistory: 4*hour + 30*time.Minute}, time.Minute, "[0 1 2 3 4]", "[0]"},
		{"by number", Options{LocalRecords: 2}, time.Minute, "[0 1]", "[0 1 2 3 4 5]"},
		{"by bytes", Options{LocalBytes: 450}, time.Minute, "[0 1 2]", "[0 1 2 3 4 5]"},
		{"by all of them", Options{LocalBytes: 450, LocalRecords: 5, HistoryExpiration: 90 * time.Minute}, time.Minute, "[0 1]", "[0 1]"},
		{"time goes on", Options{HistoryExpiration: 3*hour + 30*time.Minute}, 2*hour + 12*time.Minute, "[0 1]", "[0 1]"},
		{"a short one", Options{HistoryExpiration: 10 * time.Second}, 15 * time.Second, "[]", "[]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				for age := range 6 {
					r.old(fmt.Sprint(age), time.Duration(age)*hour)
				}
				r.start("a", c.o, quick())
				pass(c.after)
				local, remote := []string{}, []string{}
				for _, rec := range r.history() {
					local = append(local, rec.Name)
				}
				for _, u := range r.model.all("historicjobs") {
					remote = append(remote, u.GetName())
				}
				if fmt.Sprint(local) != c.local || fmt.Sprint(remote) != c.remote {
					t.Errorf("local %v, want %s; in the API %v, want %s", local, c.local, remote, c.remote)
				}
			})
		})
	}
}

// TestPruneGoesByServerTime: a host that woke up in another decade loses nothing.
func TestPruneGoesByServerTime(t *testing.T) {
	for _, skew := range []time.Duration{-20 * 365 * 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.model.skew = skew
				r.old("new", time.Minute)
				r.old("old", 3*time.Hour)
				r.start("a", Options{HistoryExpiration: 2 * time.Hour}, quick())
				pass(10 * time.Minute)
				if h := r.history(); len(h) != 1 || h[0].Name != "new" || len(r.model.all("historicjobs")) != 1 {
					t.Errorf("left: %v", h)
				}
			})
		})
	}
}

func TestPruneWaitsForTheClock(t *testing.T) {
	bubble(t, func(r *rig) {
		r.model.noDate = true
		r.old("old", 3*time.Hour)
		r.start("a", Options{HistoryExpiration: time.Hour}, quick())
		pass(time.Hour)
		if len(r.history()) != 1 {
			t.Error("pruned while the time was unknown")
		}
	})
}

func TestPruneMeetsRefusals(t *testing.T) {
	for _, status := range []int{403, 404, 405, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.old("old", 3*time.Hour)
				r.model.set(func() { r.model.absent["historicjobs"] = status })
				a := r.start("a", Options{HistoryExpiration: time.Hour}, quick())
				pass(3 * time.Hour)
				if len(r.history()) != 0 {
					t.Error("the local history is not pruned")
				}
				if got := a.count(EventNote); got != 1 {
					t.Errorf("told %d times: %q", got, a.texts(EventNote))
				}
			})
		})
	}
}

// TestTrimFollowsCompletions: the bounds by number and bytes hold while jobs end,
// not only at the next pass by age, and need no clock.
func TestTrimFollowsCompletions(t *testing.T) {
	bubble(t, func(r *rig) {
		for i := range 3 * trimEvery {
			r.repository(fmt.Sprint("r", i))
			r.job(fmt.Sprint("r", i), fmt.Sprint("j", i))
		}
		r.start("a", Options{LocalRecords: 10, LocalHistory: 24 * time.Hour}, quick())
		pass(10 * time.Second)
		if left := len(r.model.all("jobs")); left != 0 {
			t.Fatalf("%d jobs left", left)
		}
		if n := len(r.history()); n > 10 {
			t.Errorf("%d records are kept", n)
		}
	})
}

// TestTrimTakesItsHistoricJobsAlong where they stand in the same file, and
// nowhere else.
func TestTrimTakesItsHistoricJobsAlong(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprint(same), func(t *testing.T) {
			bubble(t, func(r *rig) {
				for i := range 3 * trimEvery {
					r.repository(fmt.Sprint("r", i))
					r.job(fmt.Sprint("r", i), fmt.Sprint("j", i))
				}
				o := Options{LocalRecords: 10, HistoryExpiration: 24 * time.Hour}
				if same {
					o.OldestRecord = func(ctx context.Context) (time.Time, error) {
						info, err := r.store.Info(ctx)
						return info.Oldest, err
					}
				}
				slow := worker(func(ctx context.Context, _ *Task) error {
					pause(ctx, time.Second)
					return nil
				})
				r.start("a", o, slow)
				pass(5 * time.Minute)
				if left := len(r.model.all("jobs")); left != 0 {
					t.Fatalf("%d jobs left", left)
				}
				n := len(r.model.all("historicjobs"))
				if same && n > 10+trimEvery || !same && n != 3*trimEvery {
					t.Errorf("%d HistoricJobs are kept beside %d records", n, len(r.history()))
				}
			})
		})
	}
}

// TestManyPrune: agents that prune the same HistoricJobs at once do not ask for
// much more than one of them would.
func TestManyPrune(t *testing.T) {
	const old, agents = 1500, 5
	bubble(t, func(r *rig) {
		for i := range old {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "HistoricJob",
				"status": map[string]any{"finished": r.model.now().Add(-2 * time.Hour).UnixMilli()}}}
			u.SetName(fmt.Sprintf("h%04d", i))
			r.model.create("historicjobs", "default", u)
		}
		for i := range agents {
			r.startOn(r.open(fmt.Sprint("state", i)), fmt.Sprint("a", i), Options{HistoryExpiration: time.Hour}, quick())
		}
		pass(2 * time.Minute)
		if left := len(r.model.all("historicjobs")); left != 0 {
			t.Errorf("%d left", left)
		}
		asked := r.asked("delete", "historicjobs")
		t.Logf("%d HistoricJobs took %d agents %d requests", old, agents, asked)
		if asked > old*3/2 {
			t.Errorf("%d HistoricJobs took %d requests", old, asked)
		}
	})
}

// TestRefusedIsAskedRarely: a server without HistoricJobs is asked a few times a
// day.
func TestRefusedIsAskedRarely(t *testing.T) {
	bubble(t, func(r *rig) {
		r.model.set(func() { r.model.absent["historicjobs"] = 404 })
		r.start("a", Options{HistoryExpiration: time.Hour}, quick())
		pass(24 * time.Hour)
		if n := r.asked("list", "historicjobs"); n < 3 || n > 6 {
			t.Errorf("asked %d times in a day", n)
		}
	})
}

// TestPruneInBatches: a backlog is worked off in bounded passes.
func TestPruneInBatches(t *testing.T) {
	bubble(t, func(r *rig) {
		for i := range 2500 {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "HistoricJob",
				"status": map[string]any{"finished": r.model.now().Add(-2 * time.Hour).UnixMilli()}}}
			u.SetName(fmt.Sprintf("h%04d", i))
			r.model.create("historicjobs", "default", u)
		}
		r.start("a", Options{HistoryExpiration: time.Hour}, quick())
		passes := 0
		for before := 2500; passes < 3; passes++ {
			for range 30 { // seconds; a pass takes none here, and the next is 9 s away at least
				pass(time.Second)
				if left := len(r.model.all("historicjobs")); left != before {
					if before-left > pruneBatch {
						t.Errorf("one pass has deleted %d", before-left)
					}
					before = left
					break
				}
			}
		}
		if left := len(r.model.all("historicjobs")); left != 0 {
			t.Errorf("%d left after %d passes", left, passes)
		}
	})
}

// asked counts the requests of one kind that arrived.
func (r *rig) asked(verb, resource string) (n int) {
	r.model.set(func() {
		for _, c := range r.model.calls {
			if c.Verb == verb && c.Resource == resource {
				n++
			}
		}
	})
	return n
}
