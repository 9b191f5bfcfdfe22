package apiserver

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

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
