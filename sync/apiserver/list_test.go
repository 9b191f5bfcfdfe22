package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

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
	if exact := names(s.must("GET", folderPath+"?resourceVersionMatch=Exact&resourceVersion="+first,
		"")); exact != "f00 f01 f02 f03 f04 f05 f06 f07 f08" {
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
	if code, _ := s.call("GET", folderPath+"?resourceVersionMatch=Exact&resourceVersion="+revisionOf(status),
		""); code != http.StatusUnprocessableEntity {
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
		s.must("POST", base+"repositories",
			fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":%q},
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
		{api.Column{Type: "string"}, int64(3), "3"},
		{api.Column{Type: "string"}, nil, nil},
	} {
		c.column.Path = ".v"
		if got := cellOf(c.column, map[string]any{"v": c.value}); got != c.want {
			t.Errorf("%s of %v: %v, want %v", c.column.Type, c.value, got, c.want)
		}
	}
}
