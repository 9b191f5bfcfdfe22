package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSilentHosts: jobs at hosts that do not answer hold neither all drivers nor, when they are
// known to, more than half. Those that wait for a driver ask the API for nothing.
func TestSilentHosts(t *testing.T) {
	at := func(host string) func(u *unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedMap(u.Object, map[string]any{"url": "https://" + host + "/x.git", "branch": "main"}, "spec", "git")
		}
	}
	hang := func(ctx context.Context, task *Task) error {
		if strings.HasPrefix(task.Repository.Spec.Block().URL, "https://good") {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for name, hosts := range map[string][]string{
		"one host": {"hang", "hang", "hang", "hang"}, "several": {"hang1", "hang2", "hang3", "hang4"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				w := &script{action: "push", run: hang}
				a := r.start("a", Options{Drivers: 3, Silent: func(host string) bool { return !strings.HasPrefix(host, "good") }}, w)
				for i, host := range hosts {
					r.repository(fmt.Sprint("hang", i), at(host))
					r.job(fmt.Sprint("hang", i), fmt.Sprint("hang", i), action("push"))
				}
				pass(10 * time.Second)
				r.repository("good", at("good"))
				r.job("good", "good", action("push"))
				pass(30 * time.Second)
				if !slices.Contains(w.seen(), "good 1 ") {
					t.Errorf("it did not run: %q, waiting %d", w.seen(), a.waiting())
				}
				asked := 0
				r.model.arrived(func(c call) bool {
					if c.Verb == "get" && c.Resource == "repositories" {
						asked++
					}
					return true
				})
				// One for a run, and one for each Repository that the watch has yet to show.
				if asked > len(w.seen())+len(hosts)+1 {
					t.Errorf("%d requests for a Repository for the runs %q", asked, w.seen())
				}
				a.stop()
			})
		})
	}
}

// TestStartsDrained: an agent that begins drained says so before it has read its claims, and
// never claims.
func TestStartsDrained(t *testing.T) {
	bubble(t, func(r *rig) {
		w := work(time.Minute)
		a := r.start("a", Options{Drained: true}, w)
		if a.Snapshot().DrainingSince.IsZero() {
			t.Error("it begins as one that claims")
		}
		r.repository("r1")
		r.job("r1", "waiting")
		pass(time.Minute)
		if len(w.seen()) > 0 || a.count(EventDrain) != 2 { // it drains, it is drained
			t.Errorf("runs %q, told %q", w.seen(), a.texts(EventDrain))
		}
		a.Drain(false)
		pass(2 * time.Minute)
		if len(r.history()) != 1 {
			t.Errorf("%d records", len(r.history()))
		}
	})
}

// TestDrain: what runs goes on, what comes waits, and all of it is taken when the agent claims
// again.
func TestDrain(t *testing.T) {
	bubble(t, func(r *rig) {
		w := work(time.Minute)
		a := r.start("a", Options{}, w)
		r.repository("r1")
		r.job("r1", "running")
		pass(time.Second)
		if len(a.Snapshot().Running) != 1 || a.Ready() != nil {
			t.Fatalf("%d running, %v", len(a.Snapshot().Running), a.Ready())
		}
		a.Drain(true)
		a.Drain(true)
		for n := range 9 {
			r.repository(fmt.Sprint("q", n))
			r.job(fmt.Sprint("q", n), fmt.Sprint("waiting", n))
		}
		pass(30 * time.Second)
		if since, busy := a.drain.state(); since.IsZero() || busy != 1 || len(w.seen()) != 1 || a.Ready() == nil ||
			a.Ready().Error() != "draining" {
			t.Errorf("since %s, %d busy, runs %q, ready %v", since, busy, w.seen(), a.Ready())
		}
		if a.count(EventDrain) != 1 {
			t.Errorf("told %q", a.texts(EventDrain))
		}
		pass(10 * time.Minute)
		if _, busy := a.drain.state(); busy != 0 || len(w.seen()) != 1 || len(r.history()) != 1 || a.waiting() < 9 {
			t.Errorf("%d busy, runs %q, %d records, %d waiting", busy, w.seen(), len(r.history()), a.waiting())
		}
		if told := a.texts(EventDrain); len(told) != 2 || told[1] != "drained: nothing of this agent runs any more, after 59s" {
			t.Errorf("told %q", told)
		}
		a.Drain(false)
		pass(10 * time.Minute)
		if since, _ := a.drain.state(); !since.IsZero() || len(r.history()) != 10 || a.Ready() != nil {
			t.Errorf("since %s, %d records, ready %v", since, len(r.history()), a.Ready())
		}
	})
}
