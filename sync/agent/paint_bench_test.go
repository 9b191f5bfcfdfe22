package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"limpet/state"
)

// crowd fills the queue of an agent with n jobs that wait, and waits until it
// sees them.
func crowd(t testing.TB, a *Agent, n int) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(500)
	for i := range n {
		g.Go(func() error {
			key := state.ObjectKey{Resource: "provisioning.grafana.app/jobs", Namespace: "default", Name: fmt.Sprintf("job-%05d", i)}
			_, err := a.cfg.Store.Mutate(context.Background(), key, func(_ *state.Object, rev uint64) (state.Mutation, error) {
				return state.Mutation{Data: fmt.Appendf(nil, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":%q,"namespace":"default","uid":"u%d","resourceVersion":"%d","creationTimestamp":"2026-11-20T12:00:00Z"},"spec":{"action":"pull","repository":"r%d","pull":{"incremental":true}}}`, key.Name, i, rev, i%10)}, nil
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent sees the crowd", func() bool { return len(a.jobs.Objects()) == n })
}

func BenchmarkPaint10kJobs(b *testing.B) {
	a, _ := newAgent(b, nil)
	start(b, a.jobs.Run, a.repos.Run)
	crowd(b, a, 10_000)
	p := newPainter(context.Background(), a)
	for b.Loop() {
		p.paint()
	}
	data, err := json.Marshal(p.paint())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(data)), "B/picture")
}
