package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkCreate stores jobs through the handler, each acknowledged after its
// fsync.
func BenchmarkCreate(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprintf("%d-writers", writers), func(b *testing.B) {
			s := newSite(b)
			var n atomic.Int64
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if code := createJob(b, s, fmt.Sprintf("job-%d", i)); code != http.StatusCreated {
							b.Errorf("create answered %d", code)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
		})
	}
}

func createJob(t testing.TB, s *site, name string) int {
	body := `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"` + name + `",
		"labels":{"provisioning.grafana.app/repository":"dashboards"}},
		"spec":{"action":"pull","repository":"dashboards","pull":{"incremental":true}}}`
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, base+"jobs", strings.NewReader(body))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	return w.Code
}

// BenchmarkList lists a thousand jobs by a label, as every worker does at start.
func BenchmarkList(b *testing.B) {
	s := newSite(b)
	var wg sync.WaitGroup
	var n atomic.Int64
	for range 16 {
		wg.Go(func() {
			for i := n.Add(1); i <= 1000; i = n.Add(1) {
				createJob(b, s, fmt.Sprintf("job-%d", i))
			}
		})
	}
	wg.Wait()
	b.ResetTimer()
	for range b.N {
		rec := s.send(http.MethodGet, base+"jobs?labelSelector=!provisioning.grafana.app/claim", "", nil)
		if rec.Code != http.StatusOK {
			b.Fatal(rec.Code)
		}
	}
}
