package repos

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/testenv"
)

// TestMirrorServes: a Repository whose host goes away stays in order and says who
// serves it, in its status and by an event; and again when the host is back.
func TestMirrorServes(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var away atomic.Bool
			r := newRig(t, server, func(r *rig, o *Options) {
				m, err := git.Open(t.TempDir(), git.Options{Pause: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				r.mirrors, o.Git = m, m
			})
			r.repo.Add(t, "a.json")
			host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if away.Load() {
					http.Error(w, "", http.StatusBadGateway)
					return
				}
				r.git.ServeHTTP(w, req)
			}))
			t.Cleanup(host.Close)
			second := r.git.Serve("copy.git", r.repo.Dir)
			own := host.URL + "/ops/dashboards.git"
			r.mirrored = second
			r.create(map[string]any{"git": map[string]any{"url": own}}, nil)
			well := r.until("it is well", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
			if !well.Status.Health.Healthy || len(well.Status.Health.Message) > 0 {
				t.Fatalf("%+v", well.Status.Health)
			}
			away.Store(true)
			r.later(healthyFor + time.Minute)
			words := "fetched from mirror " + second + "; " + own + " is unreachable: it answers 502 Bad Gateway"
			told := r.until("it is told", func(repo api.Repository) bool { return len(repo.Status.Health.Message) > 0 })
			if ready := condition(told, "Ready"); !told.Status.Health.Healthy || told.Status.Health.Message[0] != words || ready.Status != "True" || ready.Message != "Resource is available: "+words || len(told.Status.FieldErrors) > 0 {
				t.Errorf("%+v, %+v", told.Status.Health, ready)
			}
			r.tells("warn", words)
			_, u := r.get()
			got, err := TestRepository(t.Context(), r.checkOptions(), u)
			if err != nil || !got.Success || stepsOf(got) != "spec ok, credentials ok, remote ok, mirror "+second+" ok, branch ok" || !strings.Contains(got.Steps[2].Detail, words) {
				t.Errorf("%+v, %v", got, err)
			}
			away.Store(false)
			r.later(healthyFor + time.Minute)
			back := r.until("it is back", func(repo api.Repository) bool { return len(repo.Status.Health.Message) == 0 })
			if ready := condition(back, "Ready"); !back.Status.Health.Healthy || ready.Message != "Resource is available" {
				t.Errorf("%+v, %+v", back.Status.Health, ready)
			}
			r.tells("info", "its own host answers again")
			// A mirror that does not serve makes nobody ill, and a test tells of it.
			r.git.Serve("copy.git", testenv.EmptyRepo(t).Dir)
			_, u = r.get()
			got, err = TestRepository(t.Context(), r.checkOptions(), u)
			if err != nil || !got.Success || !strings.Contains(stepsOf(got), "remote ok, mirror "+second+" warning, branch ok") {
				t.Errorf("%+v, %v", got, err)
			}
			away.Store(true)
			r.later(healthyFor + time.Minute)
			ill := r.until("it is ill", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
			if text := ill.Status.Health.Message[0]; !strings.Contains(text, "502") || !strings.Contains(text, "mirror "+second+": ") || condition(ill, "Ready").Reason != "ServiceUnavailable" {
				t.Errorf("%+v", ill.Status)
			}
		})
	}
}

// tells waits for an event.
func (r *rig) tells(level, text string) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-r.events:
			if e.Level == level && strings.Contains(e.Text, text) {
				return
			}
		case <-deadline:
			r.t.Fatalf("no event %q", text)
		}
	}
}
