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

func TestListRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	fill(s, 2)
	token, _ := at(s.must("GET", folderPath+"?limit=1", ""), "metadata", "continue").(string)
	elsewhere := strings.Replace(folderPath, "default", "other", 1)
	for query, want := range map[string]int{
		folderPath + "?continue=e30":                                            http.StatusBadRequest,
		elsewhere + "?continue=" + token:                                        http.StatusBadRequest,
		folderPath + "?resourceVersion=1&resourceVersionMatch=Exact":            http.StatusGone,
		folderPath + "?resourceVersion=1&limit=1":                               http.StatusGone,
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
		"spec":{"title":"T","type":"git","action":"pull","url":"U","holderIdentity":"H","endpoint":"E","chart":"C","version":"V",
			"sourceRef":{"kind":"K","name":"N"},"sync":{"target":"folder"},"github":{"appID":"1","installationID":"2"}},
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
