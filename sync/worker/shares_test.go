package worker

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"limpet/sync/api"
)

// TestPullGoesOnAtTheNextMirror: a mirror that breaks off in the middle of a pack sends
// the pull to the next one.
func TestPullGoesOnAtTheNextMirror(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
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
}
