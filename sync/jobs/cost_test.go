package jobs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"limpet/state"
)

// TestCostOfAJob counts what one job costs: a job with nothing to do four
// requests and four durable writes, of which the last is waited for by nobody; a
// job that reports all the time one request a second more.
func TestCostOfAJob(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, task *Task) error {
			if task.Name == "idle" {
				return nil
			}
			for i := range 100 {
				task.Progress.SetMessage(ctx, fmt.Sprint("file ", i))
				task.Progress.Record(ctx, dashboard(Updated, nil, nil))
				<-time.After(100 * time.Millisecond)
			}
			return nil
		})
		a := r.start("a", Options{}, w)
		pass(time.Second)
		count := func(job string) (requests map[string]int, total, writes int) {
			var mu sync.Mutex // guards writes
			a.ledger.failing(func(string) error {
				mu.Lock()
				defer mu.Unlock()
				writes++
				return nil
			})
			requests = map[string]int{}
			r.model.inject(func(c call) fault {
				mu.Lock()
				defer mu.Unlock()
				what := c.Verb + " " + c.Resource
				if c.Lease {
					what = "renewal"
				}
				requests[what]++
				total++
				return fault{}
			})
			r.job("r1", job)
			pass(15 * time.Second)
			r.model.inject(nil)
			mu.Lock()
			defer mu.Unlock()
			return requests, total, writes
		}
		requests, total, writes := count("idle")
		if fmt.Sprint(requests) != "map[create historicjobs:1 delete jobs:1 get jobs:1 update jobs:1]" || total != 4 || writes != 4 {
			t.Errorf("a job with nothing to do: %v, %d writes", requests, writes)
		}
		requests, total, writes = count("busy")
		// Ten seconds: progress every 500 ms is what Grafana's recorder allows, and
		// people see. It is the throttle, not the job, that decides.
		if total > 4+2*10+2 || writes != 4 {
			t.Errorf("a job that reports for 10 s: %v, %d writes", requests, writes)
		}
	})
}

// lingering is a state file whose durable writes take some time.
type lingering struct {
	store
	takes time.Duration
}

func (l lingering) PutClaim(ctx context.Context, k state.Claim) error {
	<-time.After(l.takes)
	return l.store.PutClaim(ctx, k)
}

func (l lingering) Complete(ctx context.Context, uid string, r state.Record) error {
	<-time.After(l.takes)
	return l.store.Complete(ctx, uid, r)
}

func (l lingering) EndClaim(ctx context.Context, uid, historic string) error {
	<-time.After(l.takes)
	return l.store.EndClaim(ctx, uid, historic)
}

// TestThroughput in virtual time, where each request takes 4 ms and each durable
// write 2 ms, so that only waiting counts: three drivers on many repositories,
// and any number of them on one.
func TestThroughput(t *testing.T) {
	const (
		request, fsync = 4 * time.Millisecond, 2 * time.Millisecond
		jobs           = 120
		// GET, intent, PUT, claim kept, record, HistoricJob, DELETE.
		alone = 4*request + 3*fsync
	)
	for _, c := range []struct{ drivers, repositories, beside int }{{3, 20, 3}, {16, 1, 1}} {
		t.Run(fmt.Sprintf("drivers=%d repositories=%d", c.drivers, c.repositories), func(t *testing.T) {
			bubble(t, func(r *rig) {
				for n := range c.repositories {
					r.repository(fmt.Sprint("r", n))
				}
				a := r.start("a", Options{Drivers: c.drivers}, quick())
				settle()
				a.env.store = lingering{a.ledger, fsync}
				r.model.inject(func(call) fault { return fault{delay: request} })
				for n := range jobs {
					r.job(fmt.Sprint("r", n%c.repositories), fmt.Sprint("job-", n))
				}
				began := time.Now()
				for len(r.model.all("jobs")) > 0 && time.Since(began) < time.Minute {
					<-time.After(10 * time.Millisecond)
				}
				took := time.Since(began)
				limit := alone * jobs / time.Duration(c.beside)
				t.Logf("%.0f jobs/s, %.0f %% of what waiting allows", jobs/took.Seconds(), 100*limit.Seconds()/took.Seconds())
				if took > limit*5/4 {
					t.Errorf("%d jobs took %s, the waits of each job alone %s", jobs, took, limit)
				}
				pass(time.Second)
			})
		})
	}
}
