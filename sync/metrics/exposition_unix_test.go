//go:build unix

package metrics

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"
)

// spent is the processor time of this process.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestScrapeIsQuick: a scrape is a look at each job and no more, so ten times the jobs
// are not much more than ten times as dear, where a look at each pair would be a hundred
// times as dear; and no job costs memory. Ten thousand are 5 ms of processor time where
// the machine does nothing else. Other work makes a scrape wait, and pushes the objects
// out of the caches of the processor, so the best of many counts.
func TestScrapeIsQuick(t *testing.T) {
	const most = 40
	s := newSite(t, 3)
	best := func(jobs int) (time.Duration, float64) {
		s.fill(jobs)
		s.until("the watch shows all", func() bool { return s.control.Backlog().Unclaimed["push"] == jobs })
		best := time.Hour
		for range 400 {
			began := spent(t)
			ask(t, s.metrics, "")
			best = min(best, spent(t)-began)
		}
		return best, testing.AllocsPerRun(20, func() { ask(t, s.metrics, "") })
	}
	few, littleMemory := best(1000)
	many, muchMemory := best(10_000)
	t.Logf("a scrape takes %s with 1,000 jobs and %s with 10,000; %v and %v pieces of memory", few, many, littleMemory, muchMemory)
	if many > most*few {
		t.Errorf("a scrape takes %s, with 1,000 jobs %s", many, few)
	}
	if muchMemory > littleMemory+1000 {
		t.Errorf("a scrape takes %v pieces of memory, with 1,000 jobs %v", muchMemory, littleMemory)
	}
	if n := value(scrape(t, s.metrics), "grafana_provisioning_jobs_queue_size", "action=push"); n != 10_000 {
		t.Errorf("%v jobs wait", n)
	}
}

// TestScrapeOfRepositoriesIsQuick: 40 ms of processor time with 1,000 repositories,
// which are four series each. The best of many counts, as above.
func TestScrapeOfRepositoriesIsQuick(t *testing.T) {
	m := New("test", 1, slog.New(slog.DiscardHandler))
	var all []Repository
	for i := range 1000 {
		all = append(all, Repository{Namespace: "default", Name: fmt.Sprintf("repository-%d", i), Type: "git", Target: "folder", Checked: true, Healthy: true,
			Pulled: time.Unix(1_700_000_000+int64(i), 0), Pull: "success"})
	}
	m.Read(Source{Repositories: func() []Repository { return all }})
	best, series := time.Hour, 0
	for range 20 {
		began := spent(t)
		series = len(objectLines(m))
		best = min(best, spent(t)-began)
	}
	t.Logf("a scrape with %d series takes %s", series, best)
	if best > 40*time.Millisecond*slower {
		t.Errorf("a scrape takes %s", best)
	}
}
