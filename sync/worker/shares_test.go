package worker

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
)

// spends keeps what of its time a fetch is told to have spent before, and has taken.
type spends struct {
	*git.Mirrors
	mu            sync.Mutex // guards all below
	before, taken []time.Duration
}

func (s *spends) Fetch(ctx context.Context, r git.Remote, ref git.Ref) (git.Stats, error) {
	stats, err := s.Mirrors.Fetch(ctx, r, ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.taken = append(s.before, r.Spent), append(s.taken, stats.Asking)
	return stats, err
}

// TestFetchesOfAPullShareTheirTime: a mirror that goes away in the middle of a pack sends
// the pull to the next one, which has what is left of the time.
func TestFetchesOfAPullShareTheirTime(t *testing.T) {
	t.Parallel()
	seen := &spends{}
	r := newRig(t, "embedded", func(o *PullOptions) {
		seen.Mirrors = o.Git.(*git.Mirrors)
		o.Git = seen
	})
	breaks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			io.Copy(io.Discard, req.Body)
			panic(http.ErrAbortHandler)
		}
		r.git.ServeHTTP(w, req)
	}))
	t.Cleanup(breaks.Close)
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(own.Close)
	r.commit("a.json", board("a", "A"))
	r.repository(map[string]any{"git": map[string]any{"url": own.URL + "/site.git"}},
		map[string]string{api.AnnoGitMirrors: breaks.URL + "/ops/dashboards.git " + r.url})
	r.expect("a mirror breaks off", false, "success", "fetched from mirror "+r.url, "POST dashboards/a", "POST folders/repo")
	if len(seen.before) != 2 || seen.before[0] != 0 || seen.taken[0] == 0 || seen.before[1] != seen.taken[0] {
		t.Errorf("fetches began with %v spent, and took %v", seen.before, seen.taken)
	}
}
