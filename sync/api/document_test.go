package api

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestDocumentJSON(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"a":"\ud83d\udd25 \/ \u00e9"}`:   `{"a":"🔥 / é"}`,
		"\ufeff [1, {\"a\":\"\\/\"}]\n":    `[1,{"a":"/"}]`,
		"{a: 1, b: [x]}":                   `{"a":1,"b":["x"]}`,
		"a: 1\nb: \"\\x41\"":               `{"a":1,"b":"A"}`,
		"":                                 `null`,
		`{"a":1,"a":2}`:                    "",
		"a: 1\na: 2":                       "",
		`{"a":` + "\x00}":                  "",
		`{"a":12345678901234567890.12345}`: `{"a":12345678901234567890.12345}`,
	} {
		got, err := DocumentJSON([]byte(doc))
		var a, b any
		if want == "" && err == nil {
			t.Errorf("%q is taken: %s", doc, got)
		} else if want != "" && (err != nil || json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || !reflect.DeepEqual(a, b)) {
			t.Errorf("%q: %s %v", doc, got, err)
		}
	}
}
