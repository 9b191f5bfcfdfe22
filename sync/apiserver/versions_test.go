package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

// The version of a spec is that of the write that made it, whatever version a client asks for.
func TestVersionOfSpec(t *testing.T) {
	t.Parallel()
	const v1 = "/apis/dashboard.grafana.app/v1/namespaces/default/dashboards"
	v2 := strings.Replace(v1, "/v1/", "/v2/", 1)
	body := func(version, more string) string {
		return `{"apiVersion":"dashboard.grafana.app/` + version + `","kind":"Dashboard","metadata":{"name":"d"},"spec":{"elements":{}}` + more + `}`
	}
	back := func(version string) string {
		return `,"status":{"conversion":{"failed":true,"storedVersion":"` + version + `"},"own":1}`
	}
	applied := func(file string) string {
		return `{"metadata":{"annotations":{"` + lastApplied + `":` + compact(t, file) + `}},"spec":{"title":"t"}}`
	}
	typed := func(kind string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Type", kind) }
	}
	merge, apply := typed("application/merge-patch+json"), typed("application/apply-patch+yaml")
	for name, c := range map[string]struct {
		method, path, body string
		with               func(*http.Request)
		want               string
	}{
		"created":                           {"", "", "", nil, "v2"},
		"replaced":                          {"PUT", v1 + "/d", body("v1", ""), nil, "v1"},
		"read and replaced":                 {"PUT", v1 + "/d", body("v1", back("v2")), nil, "v2"},
		"replaced with an unserved version": {"PUT", v1 + "/d", body("v1", back("v9")), nil, "v1"},
		"edited":                            {"PATCH", v1 + "/d", `{"spec":{"title":"t"}}`, merge, "v2"},
		"a label":                           {"PATCH", v1 + "/d", `{"metadata":{"labels":{"a":"b"}}}`, merge, "v2"},
		"kubectl apply":                     {"PATCH", v1 + "/d", applied(body("v1", "")), merge, "v1"},
		"kubectl apply of what get printed": {"PATCH", v1 + "/d", applied(body("v1", back("v2"))), merge, "v2"},
		"kubectl edit of what was applied":  {"PATCH", v1 + "/d", applied(body("v2", "")), merge, "v2"},
		"server-side apply":                 {"PATCH", v1 + "/d?fieldManager=a&force=true", body("v1", ""), apply, "v1"},
		"apply without a spec":              {"PATCH", v1 + "/d?fieldManager=a", strings.Replace(body("v1", ""), `,"spec":{"elements":{}}`, "", 1), apply, "v2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.must("POST", v2, body("v2", ""))
			if c.method != "" {
				revision := revisionOf(s.must("GET", v1+"/d", ""))
				text := strings.Replace(c.body, `"name":"d"`, `"name":"d","resourceVersion":"`+revision+`"`, 1)
				if w := s.send(c.method, c.path, text, c.with); w.Code != http.StatusOK {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			for _, version := range []string{"v1", "v2"} {
				path := strings.Replace(v1, "/v1/", "/"+version+"/", 1)
				items, _ := at(s.must("GET", path, ""), "items").([]any)
				for _, o := range []map[string]any{s.must("GET", path+"/d", ""), items[0].(map[string]any)} {
					stored, _ := at(o, "status", "conversion", "storedVersion").(string)
					if o["apiVersion"] != "dashboard.grafana.app/"+version || (stored == "") != (version == c.want) ||
						stored != "" && stored != c.want || at(o, "spec", "elements") == nil {
						t.Errorf("%s, asked for %s: %s", c.want, version, compact(t, o))
					}
				}
			}
			s.must("DELETE", v1+"/d", "")
		})
	}
}
