package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sites watches who works where.
type sites struct {
	mu sync.Mutex // guards the visits
	visits
}

// visits are what there was of work.
type visits struct {
	at      map[string]int // repository -> workers at the moment
	clashes int
	runs    map[string]int // job -> runs
	repeats []string       // jobs that were not run for the first time
}

func newSites() *sites { return &sites{visits: visits{at: map[string]int{}, runs: map[string]int{}}} }

// look returns the visits up to now.
func (s *sites) look() visits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return visits{at: maps.Clone(s.at), clashes: s.clashes, runs: maps.Clone(s.runs), repeats: slices.Clone(s.repeats)}
}

// worker works for some time and tells the sites of it.
func (s *sites) worker(action string, takes func() time.Duration) *script {
	w := worker(func(ctx context.Context, task *Task) error {
		repo := task.Job.Spec.Repository
		s.mu.Lock()
		s.at[repo]++
		if s.at[repo] > 1 {
			s.clashes++
		}
		s.runs[task.Name]++
		if task.Attempt != 1 {
			s.repeats = append(s.repeats, task.Name)
		}
		d := takes()
		s.mu.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.at[repo]--
		s.mu.Unlock()
		return context.Cause(ctx)
	})
	w.action = action
	return w
}

func steady(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// two starts two agents, one for pulls and one for pushes, which therefore never compete for a job but only for the
// repository.
func (r *rig) two(pull, push *script) (a, b *agent) {
	push.action = "push"
	a = r.startOn(r.open("a.db"), "a", Options{Actions: []string{"pull"}, Cleanup: CleanupOff}, pull)
	b = r.startOn(r.open("b.db"), "b", Options{Actions: []string{"push"}, Cleanup: CleanupOff}, push)
	settle()
	return a, b
}

// TestSecondClaimYields: two claims on one repository at the same moment. One goes on, the other is given back, is not
// an attempt, is in backoff until the first is done and is run at once then.
func TestSecondClaimYields(t *testing.T) {
	bubble(t, func(r *rig) {
		s := newSites()
		r.repository("r1")
		a, b := r.two(s.worker("pull", steady(10*time.Second)), s.worker("push", steady(10*time.Second)))
		r.model.inject(func(c call) fault {
			if c.Verb == "update" && !c.Lease {
				return fault{delay: 50 * time.Millisecond} // both are under way before either is shown
			}
			return fault{}
		})
		r.job("r1", "r1-sync")
		r.job("r1", "r1-push", action("push"))
		pass(9 * time.Second)
		if gave := a.count(EventReleased) + b.count(EventReleased); gave != 1 || s.look().at["r1"] != 1 {
			t.Fatalf("%d yielded, %d work", gave, s.look().at["r1"])
		}
		pass(12 * time.Second)
		if len(r.model.all("jobs")) != 0 || s.look().clashes > 0 || len(s.look().repeats) > 0 {
			t.Errorf("%d jobs left after 21 s, %d clashes, repeated %v", len(r.model.all("jobs")), s.look().clashes, s.look().repeats)
		}
		// GET, PUT, HistoricJob, DELETE for each, three renewals of two requests at most; PUT, GET and PUT for the one
		// that yielded.
		n := r.model.arrived(func(c call) bool { return !c.Lease && c.Verb != "list" && c.Resource != "repositories" })
		if n > 2*4+2*3+3 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestForeignClaimIsWaitedFor: Grafana's own driver holds another job of the repository. Nothing is claimed, and
// nothing is asked of the API, until its job is gone, or its lease is over without anybody who cleans up.
func TestForeignClaimIsWaitedFor(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint("dies ", dies), func(t *testing.T) {
			bubble(t, func(r *rig) {
				s := newSites()
				r.repository("r1")
				r.job("r1", "r1-push", action("push"), claimOf("grafana", time.Now()))
				r.startOn(r.store, "a", Options{Cleanup: CleanupOff}, s.worker("pull", steady(time.Second)))
				r.job("r1", "r1-sync")
				pass(20 * time.Second)
				before := r.model.arrived(func(call) bool { return true })
				if !dies {
					r.model.edit("jobs", "default", "r1-push", func(u *unstructured.Unstructured) { setClaim(u, time.Now().UnixMilli(), "grafana") })
				}
				pass(30 * time.Second)
				if n := r.model.arrived(func(call) bool { return true }) - before; n > 1 || len(s.look().runs) > 0 {
					t.Fatalf("%d requests, %d runs beside a live claim", n, len(s.look().runs))
				}
				if dies {
					pass(25 * time.Second) // 75 s after the claim: expiry, what clocks may be off, and the look after it
					if s.look().runs["r1-sync"] != 1 {
						t.Fatal("a dead claim blocks the repository")
					}
					return
				}
				r.model.remove("jobs", "default", "r1-push")
				pass(1100 * time.Millisecond)
				if s.look().runs["r1-sync"] != 1 || len(r.model.all("jobs")) != 0 {
					t.Fatal("not run at once when the other agent was done")
				}
			})
		})
	}
}

// TestOrderOfForeignClaims drives other agents by hand: the order of the watch decides, not the time in the claim. A
// list says nothing of the order, and nothing at all before its end.
func TestOrderOfForeignClaims(t *testing.T) {
	t.Parallel()
	job := func(name, version, owner string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"repository": "r1"}}}
		u.SetName(name)
		u.SetUID(uidOf(int64(len(name))))
		u.SetNamespace("default")
		u.SetResourceVersion(version)
		if owner != "" {
			setClaim(u, 1, owner)
		}
		return u
	}
	mine, other := "x", "other"
	uid := string(job(mine, "", "").GetUID())
	cases := []struct {
		name    string
		events  func(n *claimIndex)
		earlier int // -1 = not known yet
		listed  bool
	}{
		{"alone", func(n *claimIndex) { n.see(job(mine, "10", "me"), false) }, 0, false},
		{"not shown", func(n *claimIndex) { n.see(job(other, "9", "you"), false) }, -1, false},
		{"other before", func(n *claimIndex) {
			n.see(job(other, "9", "you"), false)
			n.see(job(mine, "10", "me"), false)
		}, 1, false},
		{"other before and over", func(n *claimIndex) {
			n.see(job(other, "8", "you"), false)
			n.see(job(other, "9", "you"), true)
			n.see(job(mine, "10", "me"), false)
		}, 0, false},
		{"other after", func(n *claimIndex) {
			n.see(job(mine, "10", "me"), false)
			n.see(job(other, "11", "you"), false)
		}, 0, false},
		{"the same job, of another owner before", func(n *claimIndex) {
			n.see(job(mine, "9", "you"), false)
			n.see(job(mine, "10", "me"), false)
		}, 0, false},
		{"a list shows the other after", func(n *claimIndex) {
			n.setListing(true)
			n.see(job(mine, "10", "me"), false)
			n.see(job(other, "9", "you"), false)
			n.setListing(false)
		}, 1, true},
		{"a list is half shown", func(n *claimIndex) {
			n.setListing(true)
			n.see(job(mine, "10", "me"), false)
		}, -1, false},
		{"a list, after the watch has shown the own claim", func(n *claimIndex) {
			n.see(job(mine, "10", "me"), false)
			n.setListing(true)
			n.see(job(other, "11", "you"), false)
			n.setListing(false)
		}, 0, false},
		{"the own claim after a list", func(n *claimIndex) {
			n.setListing(true)
			n.see(job(other, "9", "you"), false)
			n.setListing(false)
			n.see(job(mine, "10", "me"), false)
		}, 1, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newClaimIndex(func(_, token string) bool { return token == "me" })
			c.events(n)
			got, known := n.earlier(repoKey("default", "r1"), uid, "me")
			if known != (c.earlier >= 0) || known && len(got) != c.earlier || len(got) > 0 && got[0].listed != c.listed {
				t.Fatalf("known %t, %d earlier: %+v", known, len(got), got)
			}
			n.see(job(mine, "20", "me"), true)
			n.see(job(other, "21", "you"), true)
			if len(n.repos) != 0 {
				t.Fatalf("kept %v", n.repos)
			}
		})
	}
}
