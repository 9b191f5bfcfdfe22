package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	e := newEmbedded(t)
	push := &script{action: "push"}
	cases := []struct {
		name    string
		o       Options
		workers []Worker
		text    string
	}{
		{"unsafe lease", Options{Expiry: time.Minute, Renew: time.Minute}, []Worker{quick()}, "at least 3 times"},
		{"two workers for one action", Options{}, []Worker{quick(), quick()}, `two workers for action "pull"`},
		{"an action that nobody can do", Options{Actions: []string{"pull", "psuh"}}, []Worker{quick(), push}, `no worker for action "psuh"`},
	}
	for _, c := range cases {
		jobs, repos := e.client.Informer(api.Jobs, "", kube.InformerOptions{}), e.client.Informer(api.Repositories, "", kube.InformerOptions{})
		if _, err := New(e.client, jobs, repos, nil, c.workers, c.o); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestStopBeforeTheWatchesSync: an agent that never reached its API ends at once
// and without complaint.
func TestStopBeforeTheWatchesSync(t *testing.T) {
	bubble(t, func(r *rig) {
		a := r.start("a", Options{}, quick())
		a.link.cut(true)
		pass(time.Minute)
		begin := time.Now()
		a.stop()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}

// TestNameOfAnotherRepository: the name was in the queue under one repository and
// belongs to another one by the time it is looked at.
func TestNameOfAnotherRepository(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.repository("r2")
		w := work(10 * time.Second)
		r.start("a", Options{Drivers: 1}, w)
		settle()
		r.job("r1", "first")
		settle()
		r.job("r1", "second")
		settle()
		r.model.remove("jobs", "default", "second")
		r.job("r2", "second")
		pass(30 * time.Second)
		h := r.history()
		if len(h) != 2 || h[0].Repository != "r2" || h[0].State != "success" {
			t.Errorf("history %+v", h)
		}
	})
}

// TestReplacedInOneEvent: a watch that fell behind shows the deletion of a job
// and its successor of the same name as one change.
func TestReplacedInOneEvent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(time.Hour))
		first := r.job("r1", "r1-sync")
		settle()
		r.model.set(func() { clear(r.model.watchers) })
		r.model.remove("jobs", "default", "r1-sync")
		second := r.job("r1", "r1-sync")
		a.jobHandler().Update(kube.ObjectOf(first), kube.ObjectOf(second))
		settle()
		if a.count(EventCancelled) != 1 {
			t.Error("the end of the first was not seen")
		}
		pass(15 * time.Minute) // the full list brings the cache up to date
		live := a.Snapshot().Running
		if len(live) != 1 || live[0].UID != string(second.GetUID()) {
			t.Errorf("live %+v", live)
		}
	})
}

// TestStateFileIsRebuiltUnderUs: it was found damaged, set aside, and the claim
// of the running job is not in the new one.
func TestStateFileIsRebuiltUnderUs(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		uid := ""
		drop := func() {
			if err := r.store.DropClaim(context.Background(), uid); err != nil {
				t.Error(err)
			}
		}
		w := worker(func(ctx context.Context, task *Task) error {
			uid = task.UID
			drop()
			if err := task.Progress.Mark(ctx, 1); err != nil {
				t.Errorf("mark: %v", err)
			}
			if claims := r.claims(); len(claims) != 1 || len(claims[0].Mark) == 0 {
				t.Errorf("claims %+v", claims)
			}
			drop()
			return nil
		})
		r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		settle()
		r.done("success", "")
	})
}

// TestHistoryMakesRoom: old history goes before a new result is given up.
func TestHistoryMakesRoom(t *testing.T) {
	bubble(t, func(r *rig) {
		for i := range 100 {
			if err := r.store.PutRecord(context.Background(), state.Record{UID: fmt.Sprint("old-", i), Namespace: "default", Name: "old", Finished: time.Now().Add(-time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		settle()
		a.ledger.failing(func(op string) error {
			if n, err := r.store.HistoryCount(context.Background()); op == "complete" && err == nil && n > 95 {
				return syscall.ENOSPC
			}
			return nil
		})
		r.job("r1", "r1-sync")
		pass(time.Second)
		if n := len(r.history()); n != 91 || a.count(EventPruned) != 1 || len(r.model.all("jobs")) != 0 {
			t.Errorf("%d records, %d prunes", n, a.count(EventPruned))
		}
		a.ledger.failing(func(op string) error {
			if op == "complete" {
				return syscall.ENOSPC
			}
			return nil
		})
		r.job("r1", "r1-sync")
		pass(10 * time.Minute)
		if n := len(r.history()); n < 60 || len(r.model.all("jobs")) != 1 {
			t.Errorf("a disk that stays full costs all history but %d records", n)
		}
	})
}

// TestDeletedWhileTheDiskIsFull: nothing can be kept, nothing may stay behind.
func TestDeletedWhileTheDiskIsFull(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(time.Hour))
		r.job("r1", "r1-sync")
		settle()
		a.ledger.failing(func(op string) error {
			if op == "complete" {
				return syscall.ENOSPC
			}
			return nil
		})
		r.model.remove("jobs", "default", "r1-sync")
		settle()
		if len(r.claims()) != 0 || len(a.Snapshot().Running) != 0 || a.waiting() != 0 {
			t.Errorf("claims %v, %d live, %d waiting", r.claims(), len(a.Snapshot().Running), a.waiting())
		}
	})
}

// TestEndOfClaimIsNotKept: it is tried again until it is.
func TestEndOfClaimIsNotKept(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		settle()
		a.ledger.failing(func(op string) error {
			if op == "end" {
				return syscall.ENOSPC
			}
			return nil
		})
		r.job("r1", "r1-sync")
		pass(5 * time.Minute)
		if len(r.claims()) != 1 || len(r.model.all("historicjobs")) != 1 {
			t.Errorf("claims %v", r.claims())
		}
		a.ledger.failing(nil)
		pass(time.Minute)
		if rec := r.done("success", ""); rec.HistoricJob != archivePosted {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestEventsNameTheirJob: whoever reads events can tell whose they are.
func TestEventsNameTheirJob(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(15*time.Second))
		created := r.job("r1", "r1-sync")
		pass(20 * time.Second)
		a.stop()
		want := []string{EventClaimed, EventRenewed, EventCompleted}
		var got []string
		for _, e := range a.events {
			got = append(got, e.Type)
			if e.Job != "r1-sync" || e.Namespace != "default" || e.UID != string(created.GetUID()) || e.Repository != "r1" || e.Action != "pull" || e.Attempt != 1 || e.At.IsZero() || e.Text == "" || e.Level == "" {
				t.Errorf("%+v", e)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || a.events[2].State != "success" {
			t.Errorf("events %v, want %v", got, want)
		}
		if log := a.log.String(); !strings.Contains(log, "job=default/r1-sync") || !strings.Contains(log, "step=completed") {
			t.Errorf("log\n%s", log)
		}
	})
}

func TestOnceForgetsWhenThereIsTooMuch(t *testing.T) {
	t.Parallel()
	n := 0
	e := newEmitter(slog.New(slog.DiscardHandler), func(Event) { n++ })
	for i := range 3 * maxSeen {
		e.once(fmt.Sprint(i/2), EventNote, jobRef{}, "x")
	}
	if n < 3*maxSeen/2 || n > 3*maxSeen/2+1 || len(e.seen) > maxSeen {
		t.Errorf("told %d, remembered %d", n, len(e.seen))
	}
}

// TestIntakeOverflowIsTold: more jobs than names fit.
func TestIntakeOverflowIsTold(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := quick()
		a := r.start("a", Options{}, w)
		a.queue.mu.Lock()
		a.queue.queue = queue.New(5, 0, nil)
		a.queue.mu.Unlock()
		for i := range 20 {
			r.job("r1", fmt.Sprint("j", i))
		}
		pass(10 * time.Minute)
		if len(r.history()) != 20 {
			t.Errorf("%d of 20 jobs were run", len(r.history()))
		}
	})
}
