package jobs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

func labelled(site string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"site": site}) }
}

// asked counts requests about one job.
func asked(agent, job string) func(c call) bool {
	return func(c call) bool { return c.Agent == agent && c.Resource == "jobs" && c.Name == job }
}

// TestEachJobGoesToItsAgent: by the labels of the repository and by the action.
// Agents that a job is not for leave it alone without a word and without a
// request.
func TestEachJobGoesToItsAgent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("oslo", labelled("north"))
		r.repository("rome", labelled("south"))
		north, south, push := quick(), quick(), quick()
		push.action = "push"
		a := r.startOn(r.open("a.db"), "a", Options{Selector: selector("site=north"), Actions: []string{"pull"}}, north)
		b := r.startOn(r.open("b.db"), "b", Options{Selector: selector("site=south"), Actions: []string{"pull"}}, south)
		c := r.startOn(r.open("c.db"), "c", Options{Actions: []string{"push"}}, push)
		settle()
		r.job("oslo", "oslo-sync")
		r.job("rome", "rome-sync")
		r.job("rome", "rome-push", action("push"))
		pass(3 * time.Second)
		for _, got := range []struct {
			agent *agent
			name  string
			runs  []string
			not   []string
		}{{a, "a", north.seen(), []string{"rome-sync", "rome-push"}}, {b, "b", south.seen(), []string{"oslo-sync", "rome-push"}}, {c, "c", push.seen(), []string{"oslo-sync", "rome-sync"}}} {
			if len(got.runs) != 1 {
				t.Errorf("agent %s ran %q", got.name, got.runs)
			}
			for _, job := range got.not {
				if n := r.model.arrived(asked(got.name, job)); n > 0 {
					t.Errorf("agent %s sent %d requests about %s", got.name, n, job)
				}
			}
			if texts := got.agent.texts(EventSkipped); len(texts) > 0 {
				t.Errorf("agent %s says %q", got.name, texts)
			}
		}
		if left := len(r.model.all("jobs")); left > 0 {
			t.Errorf("%d jobs left", left)
		}
	})
}

// TestTheSelectorIsAskedAgain: what the labels of a repository say holds at the
// next claim, both ways, without a restart, at once; a running job goes on.
func TestTheSelectorIsAskedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1", labelled("south"))
		north, south := work(10*time.Second), work(10*time.Second)
		r.startOn(r.open("a.db"), "a", Options{Selector: selector("site=north"), Drivers: 1}, north)
		b := r.startOn(r.open("b.db"), "b", Options{Selector: selector("site=south"), Drivers: 1}, south)
		settle()
		r.job("r1", "first")
		r.job("r1", "second")
		pass(5 * time.Second)
		if len(south.seen()) != 1 || len(north.seen()) != 0 {
			t.Fatalf("north ran %q, south %q", north.seen(), south.seen())
		}
		r.model.edit("repositories", "default", "r1", labelled("north"))
		pass(6 * time.Second) // the first has ended, the second belongs to the other agent
		if len(south.seen()) != 1 || len(north.seen()) != 1 || b.count(EventCompleted) != 1 {
			t.Fatalf("north ran %q, south %q", north.seen(), south.seen())
		}
		pass(10 * time.Second)
		r.model.edit("repositories", "default", "r1", func(u *unstructured.Unstructured) { u.SetLabels(nil) })
		pass(time.Second)
		r.job("r1", "third")
		pass(time.Minute)
		if len(south.seen()) != 1 || len(north.seen()) != 1 {
			t.Fatalf("a repository that nobody selects: north ran %q, south %q", north.seen(), south.seen())
		}
		r.model.edit("repositories", "default", "r1", labelled("south"))
		pass(time.Second)
		if len(south.seen()) != 2 {
			t.Fatalf("not taken within a second of the label: %q", south.seen())
		}
		pass(10 * time.Second)
	})
}

// TestTheRepositoryComesLater than its job: the job is taken when it comes.
func TestTheRepositoryComesLater(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 20 * time.Second} {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			bubble(t, func(r *rig) {
				w := quick()
				a := r.start("a", Options{Selector: selector("site=north")}, w)
				settle()
				r.job("r1", "r1-sync")
				pass(after)
				if len(w.seen()) != 0 || a.count(EventSkipped) != 0 {
					t.Fatalf("runs %q, says %q", w.seen(), a.texts(EventSkipped))
				}
				r.repository("r1", labelled("north"))
				pass(2 * time.Second)
				r.done("success", "")
			})
		})
	}
}

// TestThousandRepositoriesAreOneLook: changes of many Repositories at once make
// no look at the jobs each.
func TestThousandRepositoriesAreOneLook(t *testing.T) {
	bubble(t, func(r *rig) {
		a := r.start("a", Options{}, quick())
		relisted := func() (n int) {
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, d := range a.details {
				if seen, ok := d.(Seen); ok && seen.Source == SourceRelist {
					n += seen.Count
				}
			}
			return n
		}
		r.repository("r0")
		r.job("r0", "r0-push", action("push"))
		pass(time.Second)
		before := relisted()
		for n := range 1000 {
			r.repository(fmt.Sprint("r", n+1))
		}
		pass(5 * time.Second)
		if n := relisted() - before; n < 1 || n > 5 {
			t.Errorf("the one job was looked at %d times", n)
		}
	})
}

func withPriority(value string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { api.SetAnnotation(u, api.AnnoPriority, value) }
}

// TestPriorityOfJobsAndRepositories: the annotation of the job, else that of the
// repository; a change counts for jobs that wait; what is no number from 0 to 9
// counts as none and is told once.
func TestPriorityOfJobsAndRepositories(t *testing.T) {
	bubble(t, func(r *rig) {
		order := []string{}
		w := worker(func(_ context.Context, task *Task) error {
			order = append(order, task.Name)
			<-time.After(time.Second)
			return nil
		})
		a := r.start("a", Options{Drivers: 1}, w)
		for _, name := range []string{"busy", "plain", "high", "low", "raised", "bad"} {
			r.repository(name)
		}
		r.model.edit("repositories", "default", "low", withPriority("1"))
		settle()
		r.job("busy", "busy")
		settle()
		r.job("plain", "plain")
		r.job("low", "low")
		r.job("low", "low-but-urgent", withPriority("9"))
		r.job("high", "high", withPriority("8"))
		r.job("raised", "raised", withPriority("0"))
		r.job("bad", "bad", withPriority("10"))
		r.model.edit("repositories", "default", "bad", withPriority("high"))
		pass(500 * time.Millisecond)
		r.model.edit("jobs", "default", "raised", withPriority("7"))
		pass(2 * time.Minute)
		if got, want := fmt.Sprint(order), "[busy low-but-urgent high raised plain bad low]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
		if texts := a.texts(EventNote); len(texts) != 2 || !contains(texts[0], `limpet/priority is "10"`) || !contains(texts[1], `repository bad: annotation limpet/priority is "high"`) {
			t.Errorf("says %q", texts)
		}
	})
}
