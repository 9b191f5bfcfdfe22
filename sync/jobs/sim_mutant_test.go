package jobs

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/jobs/lease"
)

// TestSimulationFinds: the laws can be broken, and the worlds get to where they
// are. Each row takes away something that an agent relies on, or a care that it
// takes; within so many seeds the law that is named has to be found broken.
func TestSimulationFinds(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name   string
		change func(*simProcess)
		law    string // a part of its text
		within uint64 // seeds
	}{
		{"a state file that forgets intents", func(p *simProcess) { p.agent.env.store = forgetsIntents{p.agent.env.store} }, "state file does not know", 20},
		{"a state file that forgets claims at a restart", func(p *simProcess) { p.agent.env.store = forgetsClaims{p.agent.env.store} }, "keeps a claim", 100},
		{"a state file that keeps no records", func(p *simProcess) { p.agent.env.store = forgetsRecords{p.agent.env.store} }, "nobody has a record", 300},
		{"writes without preconditions", func(p *simProcess) { p.agent.env.server = unconditional{p.link} }, "holds the job", 300},
		{"a HistoricJob for each try", func(p *simProcess) { p.agent.env.server = manyNames{p.link} }, "another HistoricJob", 1000},
		{"a clock that is wrong and sure of it", func(p *simProcess) { p.agent.env.clock.server = wrongClock{p.clock} }, "off", 20},
		{"the time of the host for that of the server", func(p *simProcess) { p.agent.env.clock.server = hostClock{p} }, "off", 100},
		{"a clock that is not known and sure of it", func(p *simProcess) { p.agent.env.clock.server = sureClock{p.clock} }, "time is unknown", 300},
		{"a lease that does not end", func(p *simProcess) { p.agent.env.clock.host = timeless{p, p.now()} }, "the claim was confirmed", 300},
		{"one token for all agents", func(p *simProcess) { p.agent.env.clock.host, p.agent.env.o.self = sameToken{p}, "h0" }, "holds the job", 20},
		{"no eye for neighbours", func(p *simProcess) { p.agent.driver.claimer.exclusion.foreign.own = allOwn{} }, "works on a repository", 300},
		{"cleanup without patience", func(p *simProcess) { p.agent.env.o.Expiry = 12 * time.Second }, "has renewed its claim", 1000},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= m.within; seed++ {
				for _, b := range simulateWith(t, seed, m.change).oracle.broken {
					if strings.Contains(b.law, m.law) {
						t.Logf("seed %d: %s", seed, b.law)
						return
					}
				}
			}
			t.Errorf("not found within %d seeds", m.within)
		})
	}
}

type forgetsIntents struct{ store }

func (l forgetsIntents) PutClaim(ctx context.Context, k state.Claim) error {
	if k.Phase == state.PhaseIntent {
		return nil
	}
	return l.store.PutClaim(ctx, k)
}

type forgetsClaims struct{ store }

func (forgetsClaims) Claims(context.Context) ([]state.Claim, error) { return nil, nil }

type forgetsRecords struct{ store }

func (forgetsRecords) Complete(context.Context, string, state.Record) error { return nil }

// unconditional writes over whatever is there.
type unconditional struct{ *simLink }

func (l unconditional) putJob(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	now, err := l.job(ctx, keyOf(job))
	if err != nil {
		return nil, err
	}
	job.SetResourceVersion(now.GetResourceVersion())
	job.SetUID(now.GetUID())
	return l.simLink.putJob(ctx, job)
}

// manyNames leaves it to the server to name HistoricJobs, and does not find them.
type manyNames struct{ *simLink }

func (l manyNames) archive(ctx context.Context, historic *unstructured.Unstructured) error {
	historic.SetGenerateName(historic.GetName())
	historic.SetName("")
	return l.simLink.archive(ctx, historic)
}

func (manyNames) archived(context.Context, string, string) (bool, error) { return false, nil }

type wrongClock struct{ serverClock }

func (c wrongClock) Millis(most time.Duration) (int64, error) {
	ms, err := c.serverClock.Millis(most)
	return ms + (5 * time.Minute).Milliseconds(), err
}

// hostClock goes by the wall clock of the host.
type hostClock struct{ p *simProcess }

func (c hostClock) Now() (time.Time, time.Duration, bool) { return c.p.now().Wall, 0, true }
func (c hostClock) Millis(time.Duration) (int64, error)   { return c.p.now().Wall.UnixMilli(), nil }

// sureClock is content with any error.
type sureClock struct{ serverClock }

func (c sureClock) Millis(time.Duration) (int64, error) { return c.serverClock.Millis(time.Hour) }

// timeless is a host on which no time passes.
type timeless struct {
	host
	began lease.Moment
}

func (h timeless) now() lease.Moment { return h.began }
func (timeless) after(time.Duration, func()) *time.Timer {
	return time.AfterFunc(year, func() {})
}

type sameToken struct{ host }

func (sameToken) token() string { return "h0.1.1" }

// allOwn counts every claim as one of this agent.
type allOwn struct{}

func (allOwn) isOwnClaim(string, string) bool { return true }
