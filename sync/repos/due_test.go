package repos

import (
	"testing"
	"time"

	"limpet/sync/api"
)

func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ms := func(ago time.Duration) int64 { return now.Add(-ago).UnixMilli() }
	repo := func(change func(*api.Repository)) api.Repository {
		var r api.Repository
		r.Spec.Sync = api.SyncSpec{Enabled: true, IntervalSeconds: 60}
		r.Status.ObservedGeneration = 1
		r.Status.Sync = api.SyncStatus{State: api.StateSuccess, Finished: ms(30 * time.Second)}
		if change != nil {
			change(&r)
		}
		return r
	}
	tests := []struct {
		name        string
		repo        api.Repository
		generation  int64
		live        bool
		want        string // reason of the request, "" = none
		incremental bool
		next        time.Duration // from now; 0 = unknown
		lost        time.Duration // before now; 0 = nothing was lost
	}{
		{name: "within the interval", repo: repo(nil), generation: 1, next: 30 * time.Second},
		{name: "interval over", repo: repo(func(r *api.Repository) { r.Status.Sync.Finished = ms(61 * time.Second) }), generation: 1, want: "interval", incremental: true},
		{name: "exactly at the interval", repo: repo(func(r *api.Repository) { r.Status.Sync.Finished = ms(60 * time.Second) }), generation: 1, want: "interval", incremental: true},
		{name: "never pulled", repo: repo(func(r *api.Repository) { r.Status.Sync = api.SyncStatus{} }), generation: 1, want: "first pull"},
		{name: "never pulled but queued", repo: repo(func(r *api.Repository) { r.Status.Sync = api.SyncStatus{} }), generation: 1, live: true},
		{name: "sync disabled", repo: repo(func(r *api.Repository) { r.Spec.Sync.Enabled = false }), generation: 1},
		{name: "unhealthy", repo: repo(func(r *api.Repository) { r.Status.Health = api.HealthState{Checked: 1} }), generation: 1},
		{name: "spec changed", repo: repo(nil), generation: 2, want: "spec changed"},
		{name: "spec never looked at", repo: repo(func(r *api.Repository) { r.Status.ObservedGeneration = 0 }), generation: 1, want: "spec changed"},
		{name: "pulled before the loss", repo: repo(nil), generation: 1, lost: 10 * time.Second, want: "objects may be lost"},
		{name: "pulled after the loss", repo: repo(nil), generation: 1, lost: time.Minute, next: 30 * time.Second},
		{name: "interval below the minimum", repo: repo(func(r *api.Repository) { r.Spec.Sync.IntervalSeconds = 1; r.Status.Sync.Finished = ms(5 * time.Second) }), generation: 1, next: 5 * time.Second},
		{name: "clock set back by years", repo: repo(func(r *api.Repository) { r.Status.Sync.Finished = now.AddDate(10, 0, 0).UnixMilli() }), generation: 1, want: "interval", incremental: true},
		{name: "clock set back a little", repo: repo(func(r *api.Repository) { r.Status.Sync.Finished = ms(-5 * time.Second) }), generation: 1, next: 65 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var since time.Time
			if tt.lost > 0 {
				since = now.Add(-tt.lost)
			}
			req, next := Due(tt.repo, tt.generation, tt.live, since, now)
			got, inc := "", false
			if req != nil {
				got, inc = req.Reason, req.Incremental
			}
			if got != tt.want || inc != tt.incremental {
				t.Errorf("Due asks for %q (incremental %v), want %q (%v)", got, inc, tt.want, tt.incremental)
			}
			if tt.next == 0 != next.IsZero() || tt.next != 0 && next.Sub(now) != tt.next {
				t.Errorf("next is %v, want in %v", next, tt.next)
			}
		})
	}
}
