package jobs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestDriversShareRepositories: never two jobs of one repository at once, and a
// repository with many jobs does not hold up the others.
func TestDriversShareRepositories(t *testing.T) {
	bubble(t, func(r *rig) {
		var mu sync.Mutex
		running, order := map[string]int{}, []string{}
		w := worker(func(ctx context.Context, task *Task) error {
			repo := task.Job.Spec.Repository
			mu.Lock()
			running[repo]++
			order = append(order, task.Name)
			if running[repo] > 1 || len(running) > 3 {
				t.Errorf("running together: %v", running)
			}
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			if running[repo]--; running[repo] == 0 {
				delete(running, repo)
			}
			mu.Unlock()
			return nil
		})
		for i := range 5 {
			r.repository(fmt.Sprint("r", i))
		}
		for i := range 20 {
			r.job("r0", fmt.Sprintf("big-%02d", i))
		}
		a := r.start("a", Options{Drivers: 3}, w)
		settle()
		for i := 1; i < 5; i++ {
			r.job(fmt.Sprint("r", i), fmt.Sprint("small-", i))
		}
		pass(2500 * time.Millisecond)
		mu.Lock()
		small := 0
		for _, name := range order {
			if contains(name, "small") {
				small++
			}
		}
		mu.Unlock()
		if small != 4 {
			t.Errorf("order %v", order)
		}
		pass(time.Minute)
		if len(r.history()) != 24 || a.waiting() != 0 {
			t.Errorf("%d records, %d names left", len(r.history()), a.waiting())
		}
	})
}

// TestIdleAgentIsQuiet: the watch does the work, and a queue full of jobs of
// others costs nothing.
func TestIdleAgentIsQuiet(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		for i := range 50 {
			r.job("r1", fmt.Sprint("other-", i), action("push"))
		}
		r.start("a", Options{}, quick())
		pass(time.Minute)
		before := r.model.arrived(func(call) bool { return true })
		pass(time.Hour)
		if n := r.model.arrived(func(call) bool { return true }) - before; n > 120 {
			t.Errorf("%d requests in an idle hour", n)
		}
	})
}

// TestLongOutageIsQuiet: with a job of its own and an API that is away for an
// hour, the agent asks at most four times a minute.
func TestLongOutageIsQuiet(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, task *Task) error {
			if len(task.Mark) > 0 {
				return nil
			}
			if err := task.Progress.Mark(ctx, 1); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		r.model.inject(func(call) fault { return fault{lose: true} })
		pass(2 * time.Minute)
		before := r.model.arrived(func(call) bool { return true })
		pass(time.Hour)
		if n := r.model.arrived(func(call) bool { return true }) - before; n > 240 {
			t.Errorf("%d requests in an hour without answers", n)
		}
		r.model.inject(nil)
		pass(time.Minute)
		r.done("success", "")
	})
}
