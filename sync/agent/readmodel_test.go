package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"limpet/state"
)

// crowd fills the queue of an agent with n jobs that wait, and waits until it sees them.
func crowd(t testing.TB, a *Agent, n int) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(500)
	for i := range n {
		g.Go(func() error {
			key := state.ObjectKey{Resource: "provisioning.grafana.app/jobs", Namespace: "default", Name: fmt.Sprintf("job-%05d", i)}
			_, err := a.cfg.Store.Mutate(context.Background(), key, func(_ *state.Object, rev uint64) (state.Mutation, error) {
				return state.Mutation{Data: fmt.Appendf(nil,
					`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":%q,"namespace":"default","uid":"u%d","resourceVersion":"%d","creationTimestamp":"2026-11-20T12:00:00Z"},"spec":{"action":"pull","repository":"r%d","pull":{"incremental":true}}}`, key.Name, i, rev, i%10)}, nil
			})
			return err
		})
	}
	must(t, g.Wait())
	eventually(t, "the agent sees the crowd", func() bool { return len(a.jobs.Objects()) == n })
}

func BenchmarkBuild10kJobs(b *testing.B) {
	a, _ := newAgent(b, nil)
	start(b, a.jobs.Run, a.repos.Run)
	crowd(b, a, 10_000)
	p := a.builder
	for b.Loop() {
		p.Build()
	}
	data, err := json.Marshal(p.Build())
	must(b, err)
	b.ReportMetric(float64(len(data)), "B/snapshot")
}

// TestSnapshotOfManyJobs: rows are bounded, counts are not.
func TestSnapshotOfManyJobs(t *testing.T) {
	t.Parallel()
	const rows = 1000
	a, _ := newAgent(t, nil)
	start(t, a.jobs.Run, a.repos.Run)
	crowd(t, a, rows+7)
	b := a.builder
	for range 2 {
		s := b.Build()
		if len(s.Jobs) != rows || s.Counts.Pending != rows+7 || s.Counts.All() != rows+7 || s.Jobs[0].Name == "" {
			t.Errorf("%d rows, counts %+v", len(s.Jobs), s.Counts)
		}
	}
}
