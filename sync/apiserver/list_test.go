package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/api"
)

// names of the items of a list answer.
func names(list map[string]any) string {
	var out []string
	items, _ := list["items"].([]any)
	for _, item := range items {
		name, _ := at(item.(map[string]any), "metadata", "name").(string)
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func fill(s *site, n int) {
	s.t.Helper()
	for i := range n {
		s.must("POST", folderPath, folder(fmt.Sprintf("f%02d", i), "old", ""))
	}
}

// The pages of a list show one moment, whatever happens between them.
func TestPagesAreOneMoment(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	fill(s, 9)
	page := s.must("GET", folderPath+"?limit=3", "")
	if names(page) != "f00 f01 f02" {
		t.Fatalf("first page: %s", names(page))
	}
	first := revisionOf(page)
	s.must("DELETE", folderPath+"/f01", "")
	s.must("DELETE", folderPath+"/f04", "")
	s.must("PATCH", folderPath+"/f05", `{"spec":{"title":"new"}}`)
	s.must("POST", folderPath, folder("f045", "new", ""))
	s.must("POST", folderPath, folder("z", "new", ""))
	s.must("DELETE", folderPath+"/f08", "")
	s.must("POST", folderPath, folder("f08", "new", ""))
	s.must("POST", strings.Replace(folderPath, "default", "other", 1), folder("f055", "new", ""))
	var seen []string
	for range 5 {
		token, _ := at(page, "metadata", "continue").(string)
		if token == "" {
			break
		}
		page = s.must("GET", folderPath+"?limit=3&continue="+url.QueryEscape(token), "")
		seen = append(seen, names(page))
		if revisionOf(page) != first {
			t.Errorf("a page is of %s, the first of %s", revisionOf(page), first)
		}
		for _, item := range page["items"].([]any) {
			if title := at(item.(map[string]any), "spec", "title"); title != "old" {
				t.Errorf("%v is shown as it is now", at(item.(map[string]any), "metadata", "name"))
			}
		}
	}
	if got := strings.TrimSpace(strings.Join(seen, " ")); got != "f03 f04 f05 f06 f07 f08" {
		t.Errorf("later pages: %v", seen)
	}
	if now := names(s.must("GET", folderPath, "")); now != "f00 f02 f03 f045 f05 f06 f07 f08 z" {
		t.Errorf("today: %s", now)
	}
	// The same moment can be asked for by its version.
	if exact := names(s.must("GET", folderPath+"?resourceVersionMatch=Exact&resourceVersion="+first, "")); exact != "f00 f01 f02 f03 f04 f05 f06 f07 f08" {
		t.Errorf("exact: %s", exact)
	}
}

func TestPagesExpire(t *testing.T) {
	t.Parallel()
	s := narrowSite(t)
	fill(s, 4)
	page := s.must("GET", folderPath+"?limit=2", "")
	token, _ := at(page, "metadata", "continue").(string)
	for n := range narrowWindow + 1 {
		s.must("PATCH", folderPath+"/f00", fmt.Sprintf(`{"spec":{"n":%d}}`, n))
	}
	code, status := s.call("GET", folderPath+"?limit=2&continue="+url.QueryEscape(token), "")
	if code != http.StatusGone || status["reason"] != "Expired" {
		t.Fatalf("an expired token is answered with %d %v", code, status["reason"])
	}
	rest, _ := at(status, "metadata", "continue").(string)
	page = s.must("GET", folderPath+"?limit=2&continue="+url.QueryEscape(rest), "")
	if names(page) != "f02 f03" || at(page, "metadata", "continue") != nil {
		t.Errorf("the rest of an expired list: %s", names(page))
	}
	if code, _ := s.call("GET", folderPath+"?resourceVersionMatch=Exact&resourceVersion="+revisionOf(status), ""); code != http.StatusUnprocessableEntity {
		t.Errorf("an exact list of no version is answered with %d", code)
	}
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	fill(s, 2)
	token, _ := at(s.must("GET", folderPath+"?limit=1", ""), "metadata", "continue").(string)
	elsewhere := strings.Replace(folderPath, "default", "other", 1)
	for query, want := range map[string]int{
		folderPath + "?continue=abc":                                            http.StatusBadRequest,
		folderPath + "?continue=e30":                                            http.StatusBadRequest,
		folderPath + "?resourceVersion=5&continue=" + token:                     http.StatusBadRequest,
		elsewhere + "?continue=" + token:                                        http.StatusBadRequest,
		folderPath + "?resourceVersion=x":                                       http.StatusBadRequest,
		folderPath + "?limit=x":                                                 http.StatusBadRequest,
		folderPath + "?labelSelector=%3D%3D":                                    http.StatusBadRequest,
		folderPath + "?fieldSelector=spec.title%3Dx":                            http.StatusBadRequest,
		folderPath + "?resourceVersion=1&resourceVersionMatch=Exact":            http.StatusGone,
		folderPath + "?resourceVersion=1&limit=1":                               http.StatusGone,
		folderPath + "?resourceVersion=1":                                       http.StatusOK,
		folderPath + "?resourceVersion=0":                                       http.StatusOK,
		folderPath + "?fieldSelector=metadata.namespace%3Ddefault":              http.StatusOK,
		folderPath + "?fieldSelector=metadata.name%3Df00":                       http.StatusOK,
		base + "repositories?fieldSelector=spec.connection.name%3Dx":            http.StatusOK,
		"/api/v1/events?fieldSelector=involvedObject.name%3Dx":                  http.StatusOK,
		"/apis/folder.grafana.app/v1/folders?fieldSelector=metadata.name%3Df00": http.StatusOK,
	} {
		if code, answer := s.call("GET", query, ""); code != want {
			t.Errorf("%s answered %d: %v", query, code, answer["message"])
		}
	}
}

// A field selector works on values that objects do not have.
func TestFieldSelector(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, connection := range map[string]string{"a": `,"connection":{"name":"app"}`, "b": ""} {
		s.must("POST", base+"repositories", fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":%q},
			"spec":{"title":"x","type":"github","github":{"url":"https://github.com/a/b","branch":"main"},"sync":{"enabled":false,"target":"folder"}%s}}`, name, connection))
	}
	for selector, want := range map[string]string{
		"spec.connection.name=app": "a", "spec.connection.name!=app": "b", "spec.connection.name=": "b", "metadata.name!=a": "b",
		"spec.connection.name=app,metadata.name=b": "",
	} {
		if got := names(s.must("GET", base+"repositories?fieldSelector="+url.QueryEscape(selector), "")); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
}

// Every column of every kind can be read from an object that has its value.
func TestColumns(t *testing.T) {
	t.Parallel()
	object := []byte(`{"metadata":{"name":"n","creationTimestamp":"2020-01-01T00:00:00Z"},"type":"T","reason":"R","message":"M",
		"spec":{"title":"T","type":"git","action":"pull","url":"U","holderIdentity":"H","sync":{"target":"folder"},"github":{"appID":"1","installationID":"2"}},
		"status":{"state":"success","message":"M","conditions":[{"type":"Ready","status":"True","message":"m"}]}}`)
	for _, k := range api.Kinds {
		c := call{target: target{kind: k}, req: httptest.NewRequest("GET", "/", nil), media: media{as: asTable, version: "v1"}}
		table, err := c.table([][]byte{object})
		if err != nil {
			t.Fatal(err)
		}
		if len(table.ColumnDefinitions) != len(table.Rows[0].Cells) {
			t.Fatalf("%s: %d columns, %d cells", k.Kind, len(table.ColumnDefinitions), len(table.Rows[0].Cells))
		}
		for i, cell := range table.Rows[0].Cells {
			if cell == nil || cell == "" {
				t.Errorf("%s: no value for %s", k.Kind, table.ColumnDefinitions[i].Name)
			}
		}
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		column api.Column
		value  any
		want   any
	}{
		{api.Column{Type: "date"}, "yesterday", "<invalid>"},
		{api.Column{Type: "date"}, 3.0, nil},
		{api.Column{Type: "integer"}, int64(3), int64(3)},
		{api.Column{Type: "integer"}, 3.9, int64(3)},
		{api.Column{Type: "integer"}, "3", nil},
		{api.Column{Type: "string"}, int64(3), "3"},
		{api.Column{Type: "string"}, nil, nil},
	} {
		c.column.Path = ".v"
		if got := cellOf(c.column, map[string]any{"v": c.value}); got != c.want {
			t.Errorf("%s of %v: %v, want %v", c.column.Type, c.value, got, c.want)
		}
	}
}

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
