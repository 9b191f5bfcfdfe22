package apiserver

import (
	"net/http/httptest"
	"testing"

	"limpet/sync/api"
)

// Every column of every kind can be read from an object that has its value.
func TestColumns(t *testing.T) {
	t.Parallel()
	object := []byte(`{"metadata":{"name":"n","creationTimestamp":"2020-01-01T00:00:00Z"},"type":"T","reason":"R","message":"M",
		"spec":{"title":"T","type":"git","action":"pull","url":"U","holderIdentity":"H","sync":{"target":"folder"},"github":{"appID":"1","installationID":"2"}},
		"status":{"state":"success","message":"M","conditions":[{"type":"Ready","status":"True","message":"m"}]}}`)
	for _, k := range api.Kinds {
		table, err := tableOf(httptest.NewRequest("GET", "/", nil), media{As: asTable, Version: "v1"}, k, [][]byte{object}, true)
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
