package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/snapshot"
)

// TestSuspendedClaim checks the row of a job whose lease ends while the API is unavailable: it
// belongs to no other agent, and this one resumes it. An agent that cannot claim is not ready.
func TestSuspendedClaim(t *testing.T) {
	t.Parallel()
	away, _ := newAgent(t, nil) // its embedded API is the server of the other
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		away.clients.embedded.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(slow.Close)
	a, _ := newAgent(t, func(c *Config) {
		c.API.Server = server.URL
		c.Jobs.Expiry, c.Jobs.Renew = 4*time.Second, time.Second
	})
	start(t, a.Run)
	eventually(t, "the agent is ready", func() bool { return a.endpoint.NotReady() == "" })
	create(t, a, "Repository", "slow", map[string]any{"spec": map[string]any{"title": "slow", "type": "git",
		"git":  map[string]any{"url": slow.URL + "/x.git"},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(86400)}}})
	create(t, a, "Job", "slow-sync", map[string]any{"spec": map[string]any{"action": "pull", "repository": "slow",
		"pull": map[string]any{"incremental": false}}})
	eventually(t, "the job runs", func() bool { return fresh(t, a).Counts.Working == 1 })

	down.Store(true)
	server.CloseClientConnections()
	eventually(t, "the lease has ended", func() bool {
		return len(a.controller.Snapshot().SuspendedClaims) == 1 && len(a.controller.Snapshot().Running) == 0
	})
	var row snapshot.Job
	eventually(t, "the snapshot says who goes on", func() bool {
		s := fresh(t, a)
		if len(s.Jobs) != 1 || s.API.Up {
			return false
		}
		row = s.Jobs[0]
		return row.WaitReason != "" && s.Counts == snapshot.Counts{Pending: 1}
	})
	if row.Owner != "" || row.State != api.StatePending || !row.LeaseUntil.IsZero() {
		t.Errorf("%+v", row)
	}
	if why := a.endpoint.NotReady(); !strings.Contains(why, "the API has not answered for") {
		t.Errorf("not ready: %q", why)
	}

	down.Store(false)
	eventually(t, "the agent is ready again", func() bool { return a.endpoint.NotReady() == "" })
	eventually(t, "the job runs again", func() bool {
		s := fresh(t, a)
		return s.Counts == snapshot.Counts{Working: 1} && s.Jobs[0].Owner == "this" && s.Jobs[0].WaitReason == ""
	})
}
