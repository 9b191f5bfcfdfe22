package repos

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
)

// rival is a neighbour that comes and goes as the test says.
type rival struct {
	away   atomic.Bool
	checks atomic.Int64 // that this side has announced
}

func (r *rival) Active() bool                         { return r.away.Load() }
func (r *rival) Late() time.Duration                  { return 90 * time.Second }
func (r *rival) Writes(_, _, _ string, checked int64) { r.checks.Store(checked) }

// TestNeighbourAtWork: while another controller looks after a Repository nobody asks
// its remote and nothing is written; afterwards it is looked after as ever, but later
// than the other one would; and what is under way when one comes is not written.
func TestNeighbourAtWork(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			other := &rival{}
			var asked atomic.Int64
			var comes atomic.Bool
			r := newRig(t, server, func(_ *rig, o *Options) {
				o.Neighbour = other
				remote := o.Remote
				o.Remote = func(ctx context.Context, namespace, name string, repo api.Repository) (git.Remote, error) {
					asked.Add(1)
					if comes.Load() {
						other.away.Store(false)
					}
					return remote(ctx, namespace, name, repo)
				}
			})
			r.repo.Add(t, "a.json")
			r.create(map[string]any{"sync": map[string]any{"enabled": false, "target": "folder", "intervalSeconds": int64(60)}}, nil)
			eventually(t, "the controller has seen it", func() bool { _, ok := r.controller.repos.Get(r.namespace, "site"); return ok })
			r.controller.Wake(r.namespace, "site")
			eventually(t, "it has looked", func() bool { return r.controller.queue.Len() == 0 })
			if got := r.writes.take(); len(got) > 0 || asked.Load() > 0 {
				t.Errorf("%d questions, writes %q", asked.Load(), got)
			}
			other.away.Store(true)
			r.controller.Begin()
			r.controller.Wake(r.namespace, "site")
			repo := r.until("it is looked after", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
			if other.checks.Load() != repo.Status.Health.Checked {
				t.Error("the check was not announced")
			}
			r.wrote(1)
			eventually(t, "the next check comes late", func() bool {
				return r.controller.Next(r.namespace, "site").After(time.Now().Add(healthyFor + 60*time.Second))
			})
			comes.Store(true)
			r.merge(`{"spec":{"title":"Other"}}`)
			eventually(t, "it was looked into", func() bool { return !other.Active() })
			eventually(t, "that is over", func() bool { return r.controller.Next(r.namespace, "site").IsZero() })
			if got := r.writes.take(); len(got) > 0 {
				t.Errorf("writes %q", got)
			}
		})
	}
}

// TestChecksComeLate: a neighbour that has come back is the first to check.
func TestChecksComeLate(t *testing.T) {
	t.Parallel()
	for age, due := range map[time.Duration]bool{healthyFor + 90*time.Second: false, healthyFor + 90*time.Second + time.Millisecond: true, time.Second: false} {
		if got := healthDue(api.HealthState{Healthy: true, Checked: ago(age)}, false, at, 90*time.Second); got != due {
			t.Errorf("after %s: %t", age, got)
		}
	}
	if !healthDue(api.HealthState{}, false, at, 90*time.Second) {
		t.Error("the first check waits")
	}
}

// TestPolite: nothing passes once a neighbour is there, and who is refused looks again.
func TestPolite(t *testing.T) {
	t.Parallel()
	other := &rival{}
	p := politely(nil, other, Repository)
	_, err := p.patch(t.Context(), Key{}, true, nil)
	if all := []error{err, p.pull(t.Context(), Key{}, true), p.dropJob(t.Context(), nil)}; slices.ContainsFunc(all, func(err error) bool { return !errors.Is(err, errMoved) }) {
		t.Errorf("%v", all)
	}
}
