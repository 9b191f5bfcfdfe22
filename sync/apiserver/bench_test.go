package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

// noted makes a Repository that has been pulled, with what its clients have written,
// and answers its path.
func (s *site) noted(name string) string {
	s.t.Helper()
	s.must(http.MethodPost, base+"repositories?fieldManager=kubectl", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository",
		"metadata":{"name":"`+name+`"},"spec":{"title":"Site","type":"git","workflows":[],
		"git":{"url":"https://git.example.com/site/`+name+`.git","branch":"main","path":"grafana"},
		"sync":{"enabled":true,"target":"folder","intervalSeconds":60}},"secure":{"token":{"create":"secret"}}}`)
	at := base + "repositories/" + name
	s.must(http.MethodPatch, at+"/status?fieldManager=limpet", `{"status":{"observedGeneration":1,
		"conditions":[{"type":"Ready","status":"True","reason":"Available","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1},
			{"type":"NamespaceQuota","status":"True","reason":"QuotaUnlimited","message":"no quota","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}],
		"health":{"healthy":true,"checked":1700000000000,"message":[]},
		"stats":[{"group":"dashboard.grafana.app","resource":"dashboards","count":1},{"group":"folder.grafana.app","resource":"folders","count":1}],
		"sync":{"state":"success","job":"`+name+`-sync","started":1700000000000,"finished":1700000001000,"message":[],"lastRef":"0123456789012345678901234567890123456789"}}}`)
	return at
}

// noteOfHealth is the patch with which a controller notes that a Repository is well.
func noteOfHealth(revision string, checked int64) string {
	return fmt.Sprintf(`application/json-patch+json [{"op":"test","path":"/metadata/resourceVersion","value":%q},
		{"op":"add","path":"/status/health","value":{"healthy":true,"checked":%d,"message":[]}}]`, revision, checked)
}

// BenchmarkNoteOfHealth is what a quiet Repository costs this API: a patch of its
// status every few minutes.
func BenchmarkNoteOfHealth(b *testing.B) {
	s := newSite(b)
	path := s.noted("r0000")
	revision, _ := at(s.must(http.MethodGet, path, ""), "metadata", "resourceVersion").(string)
	b.ReportAllocs()
	now := time.Now().UnixMilli()
	for b.Loop() {
		now++
		rec := s.send(http.MethodPatch, path+"/status?fieldManager=limpet", noteOfHealth(revision, now), nil)
		if rec.Code != http.StatusOK {
			b.Fatal(rec.Code, rec.Body)
		}
		data := rec.Body.Bytes()
		revision = text(data, find(data, "metadata", "resourceVersion"))
	}
}
