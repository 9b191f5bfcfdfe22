package jobs

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

var storms = flag.Int("storms", 6, "how many storms TestStorm lets loose")

// TestStorm: three agents, jobs of four repositories, lost requests and answers,
// slow and failing ones, crashes and restarts, cut links, people who cancel and
// delete. When it is over every job has ended, each has one HistoricJob at most,
// and no agent has written what it must not (the oracle of bubble).
func TestStorm(t *testing.T) {
	for seed := range uint64(*storms) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(r *rig) { newStorm(r, seed).run() })
		})
	}
}

type storm struct {
	*rig
	mu     sync.Mutex // guards rng, which faults use from many goroutines
	rng    *rand.Rand
	stores []*state.Store
	alive  []*agent
	starts []int
}

func newStorm(r *rig, seed uint64) *storm {
	s := &storm{rig: r, rng: rand.New(rand.NewPCG(seed, 7))}
	for i := range 3 {
		s.stores = append(s.stores, r.open(fmt.Sprint("agent", i, ".db")))
	}
	s.alive, s.starts = make([]*agent, 3), make([]int, 3)
	return s
}

func (s *storm) n(limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(limit)
}

func (s *storm) begin(i int) {
	s.starts[i]++
	s.alive[i] = s.startOn(s.stores[i], fmt.Sprintf("%c%d", 'a'+i, s.starts[i]), Options{MaxAttempts: 1000, Drivers: 2}, worker(s.work))
}

// work does some batches, each with a mark, and sometimes fails.
func (s *storm) work(ctx context.Context, t *Task) error {
	for range 1 + s.n(5) {
		select {
		case <-time.After(time.Duration(s.n(15_000)) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		t.Progress.SetMessage(ctx, fmt.Sprint("message ", s.n(1000)))
		t.Progress.Record(ctx, dashboard(Created, nil, nil))
		if err := t.Progress.Mark(ctx, s.n(1000)); err != nil {
			return err
		}
	}
	if s.n(5) == 0 {
		return fmt.Errorf("bad luck")
	}
	return nil
}

func (s *storm) fault(c call) fault {
	switch s.n(40) {
	case 0, 1:
		return fault{lose: true}
	case 2, 3:
		return fault{loseAnswer: true}
	case 4:
		return fault{status: 500}
	case 5:
		return fault{status: 429, after: 1 + s.n(5)}
	case 6, 7, 8:
		return fault{delay: time.Duration(s.n(3000)) * time.Millisecond}
	case 9:
		return fault{delay: time.Duration(s.n(20_000)) * time.Millisecond, loseAnswer: true}
	}
	return fault{}
}

func (s *storm) run() {
	for i := range 4 {
		s.repository(fmt.Sprint("r", i))
	}
	for i := range s.alive {
		s.begin(i)
	}
	settle()
	s.model.inject(s.fault)
	deleted := map[string]bool{}
	var made []*unstructured.Unstructured
	for step := range 120 {
		if step%4 == 0 {
			made = append(made, s.job(fmt.Sprint("r", s.n(4)), fmt.Sprint("job", step)))
		}
		i := s.n(3)
		switch s.n(16) {
		case 0:
			s.alive[i].crash()
			s.begin(i)
		case 1:
			s.alive[i].stop()
			s.begin(i)
		case 2:
			s.alive[i].link.cut(true)
			a := s.alive[i]
			time.AfterFunc(time.Duration(s.n(120))*time.Second, func() { a.link.cut(false) })
		case 3:
			if jobs := s.model.all("jobs"); len(jobs) > 0 {
				u := jobs[s.n(len(jobs))]
				deleted[string(u.GetUID())] = true
				s.model.remove("jobs", "default", u.GetName())
			}
		case 4:
			if jobs := s.model.all("jobs"); len(jobs) > 0 {
				s.model.edit("jobs", "default", jobs[s.n(len(jobs))].GetName(), func(u *unstructured.Unstructured) { api.SetAnnotation(u, api.AnnoCancel, "enough") })
			}
		}
		pass(time.Duration(s.n(4000)) * time.Millisecond)
	}
	s.model.inject(nil)
	for _, a := range s.alive {
		a.link.cut(false)
	}
	pass(30 * time.Minute)
	s.judge(made, deleted)
}

func (s *storm) judge(made []*unstructured.Unstructured, deleted map[string]bool) {
	if left := s.model.all("jobs"); len(left) > 0 {
		s.t.Errorf("%d jobs left, the first %v", len(left), left[0].Object)
	}
	archived := map[string]int{}
	for _, h := range s.model.all("historicjobs") {
		archived[h.GetLabels()[api.LabelOriginalUID]]++
	}
	records := map[string]bool{}
	for i, store := range s.stores {
		claims, err := store.Claims(context.Background())
		if err != nil || len(claims) > 0 {
			s.t.Errorf("agent %d keeps claims %+v, %v", i, claims, err)
		}
		list, err := store.History(context.Background(), state.Query{})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range list {
			records[r.UID] = true
		}
	}
	for _, u := range made {
		uid := string(u.GetUID())
		if n := archived[uid]; n > 1 || n == 0 && !deleted[uid] {
			s.t.Errorf("%s (%s) has %d HistoricJobs", u.GetName(), uid, n)
			s.dump(uid)
		}
		if !records[uid] && !deleted[uid] {
			s.t.Errorf("%s (%s) is in nobody's history", u.GetName(), uid)
		}
	}
	for i := range s.alive {
		if live := s.alive[i].Snapshot().Running; len(live) != 0 {
			s.t.Errorf("agent %d still works on %+v", i, live)
		}
	}
}

// dump tells the story of one job.
func (s *storm) dump(uid string) {
	for _, a := range s.agents {
		a.mu.Lock()
		for _, e := range a.events {
			if e.UID == uid && e.Type != EventProgress && e.Type != EventApplied {
				s.t.Log(e.At.Format("04:05.000"), a.link.agent, e.Type, e.Attempt, e.State, e.Text)
			}
		}
		a.mu.Unlock()
	}
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	for _, e := range s.model.audit {
		for _, u := range []*unstructured.Unstructured{e.before, e.now} {
			if u != nil && (string(u.GetUID()) == uid || u.GetLabels()[api.LabelOriginalUID] == uid) {
				s.t.Log(e.at.Format("04:05.000"), e.Agent, e.Verb, e.Resource, u.GetLabels())
			}
		}
	}
}
