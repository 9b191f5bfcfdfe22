package jobs

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/kube"
)

// TestSecondClaimYields: two claims on one repository at the same moment. One goes on, the other is
// given back, is not an attempt, is in backoff until the first is done and is run at once then.
func TestSecondClaimYields(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		pull, push := work(10*time.Second), work(10*time.Second)
		push.action = "push" // so they never compete for a job but only for the repository
		a := r.startOn(r.open("a.db"), "a", Options{Cleanup: CleanupOff}, pull)
		b := r.startOn(r.open("b.db"), "b", Options{Cleanup: CleanupOff}, push)
		settle()
		r.model.inject(func(c call) fault {
			if c.Verb == "update" && !c.Lease {
				return fault{delay: 50 * time.Millisecond} // both are under way before either is shown
			}
			return fault{}
		})
		r.job("r1", "r1-sync")
		r.job("r1", "r1-push", action("push"))
		pass(9 * time.Second)
		if gave, runs := a.count(EventReleased)+b.count(EventReleased), len(pull.seen())+len(push.seen()); gave != 1 || runs != 1 {
			t.Fatalf("%d yielded, %d work", gave, runs)
		}
		pass(12 * time.Second)
		if runs := fmt.Sprint(pull.seen(), push.seen()); len(r.model.all("jobs")) != 0 || runs != "[r1-sync 1 ] [r1-push 1 ]" {
			t.Errorf("%d jobs left after 21 s, runs %s", len(r.model.all("jobs")), runs)
		}
		// PUT, HistoricJob, DELETE for each, three renewals of two requests at
		// most; PUT, GET and PUT for the one that yielded.
		n := r.model.arrived(func(c call) bool { return !c.Lease && c.Verb != "list" && c.Resource != "repositories" })
		if n > 2*3+2*3+3 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestClaimsAreListedInTurn: where the watch is behind, drivers list the claims one after the other,
// and one whose claim is shown meanwhile lists none.
func TestClaimsAreListedInTurn(t *testing.T) {
	bubble(t, func(r *rig) {
		const repositories, took = 8, 400 * time.Millisecond
		for i := range repositories {
			r.repository(fmt.Sprint("r", i))
			r.job(fmt.Sprint("r", i), fmt.Sprint("j", i))
		}
		var mu sync.Mutex // guards lists
		var lists []time.Time
		r.model.inject(func(c call) fault {
			if c.Verb != "list" || c.Resource != "jobs" {
				return fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			lists = append(lists, time.Now())
			return fault{delay: took}
		})
		w := work(time.Second)
		a := r.start("a", Options{Drivers: repositories}, w)
		a.link.lag(func() time.Duration { return 200 * time.Millisecond })
		pass(30 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for i, at := range lists {
			if i > 0 && at.Sub(lists[i-1]) < took {
				t.Errorf("list %d begins %s after the one before", i, at.Sub(lists[i-1]))
			}
		}
		if n, runs := len(lists), len(w.seen()); n == 0 || n >= repositories || runs != repositories {
			t.Errorf("%d lists, %d runs", n, runs)
		}
	})
}

// TestForeignClaimIsWaitedFor: Grafana's own driver holds another job of the repository. Nothing is
// claimed, and nothing is asked of the API, until its job is gone, or its lease is over without
// anybody who cleans up.
func TestForeignClaimIsWaitedFor(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint("dies ", dies), func(t *testing.T) {
			bubble(t, func(r *rig) {
				w := work(time.Second)
				r.repository("r1")
				r.job("r1", "r1-push", action("push"), claimOf("grafana", time.Now()))
				r.start("a", Options{Cleanup: CleanupOff}, w)
				r.job("r1", "r1-sync")
				pass(20 * time.Second)
				any := func(call) bool { return true }
				before := r.model.arrived(any)
				if !dies {
					r.model.edit("jobs", "default", "r1-push", claimOf("grafana", time.Now()))
				}
				pass(30 * time.Second)
				if n := r.model.arrived(any) - before; n > 1 || len(w.seen()) > 0 {
					t.Fatalf("%d requests, %d runs beside a live claim", n, len(w.seen()))
				}
				if dies {
					pass(25 * time.Second) // 75 s after the claim: expiry, what clocks may be off, and the look after it
				} else {
					r.model.remove("jobs", "default", "r1-push")
					pass(1100 * time.Millisecond)
				}
				if left := len(r.model.all("jobs")); len(w.seen()) != 1 || dies != (left == 1) {
					t.Fatalf("runs %q, %d jobs left", w.seen(), left)
				}
			})
		})
	}
}

// TestOrderOfForeignClaims drives other agents by hand: the order of the watch decides, not the
// time in the claim. A list says nothing of the order, and nothing at all before its end.
func TestOrderOfForeignClaims(t *testing.T) {
	t.Parallel()
	job := func(name, owner string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"repository": "r1"}}}
		u.SetName(name)
		u.SetUID(types.UID(name))
		u.SetNamespace("default")
		setClaim(u, 1, owner)
		return u
	}
	for _, c := range []struct {
		name string
		// shown: "(" and ")" enclose a list, "m" is the own claim, "o" the other one, "e" its end, "y"
		// the other owner of the own job.
		shown   string
		earlier int // -1 = not known yet
		listed  bool
	}{
		{"alone", "m", 0, false},
		{"not shown", "o", -1, false},
		{"other before", "om", 1, false},
		{"other before and over", "oem", 0, false},
		{"other after", "mo", 0, false},
		{"the same job, of another owner before", "ym", 0, false},
		{"a list shows the other after", "(mo)", 1, true},
		{"a list is half shown", "(m", -1, false},
		{"a list, after the watch has shown the own claim", "m(o)", 0, false},
		{"the own claim after a list", "(o)m", 1, false},
	} {
		n := newClaimIndex(func(_, token string) bool { return token == "me" })
		for _, event := range c.shown {
			switch event {
			case '(', ')':
				n.setListing(event == '(')
			case 'm':
				n.see(shown(kube.ObjectOf(job("x", "me"))), false)
			case 'y':
				n.see(shown(kube.ObjectOf(job("x", "you"))), false)
			case 'o', 'e':
				n.see(shown(kube.ObjectOf(job("other", "you"))), event == 'e')
			}
		}
		got, known := n.earlier(repoKey("default", "r1"), "x", "me")
		if known != (c.earlier >= 0) || known && len(got) != c.earlier || len(got) > 0 && got[0].listed != c.listed {
			t.Errorf("%s: known %t, %d earlier: %+v", c.name, known, len(got), got)
		}
		n.see(shown(kube.ObjectOf(job("x", "me"))), true)
		n.see(shown(kube.ObjectOf(job("other", "you"))), true)
		if len(n.repos) != 0 {
			t.Errorf("%s: kept %v", c.name, n.repos)
		}
	}
}
