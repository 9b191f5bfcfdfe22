package apiserver

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const data = `{"apiVersion":"v1","kind":"X","metadata":{"labels":{"a\"b":"1","c":"2"},"name":"n\u003c\\","resourceVersion":"7"},` +
		`"spec":{"list":[{"name":"no"},[]],"n":-1.5e3,"t":true,"z":null},"text":"{\"metadata\":{\"name\":\"wrong\"}}"}`
	for _, c := range []struct {
		path []string
		want string
	}{
		{nil, data},
		{[]string{"kind"}, `"X"`},
		{[]string{"metadata", "resourceVersion"}, `"7"`},
		{[]string{"metadata", "name"}, `"n\u003c\\"`},
		{[]string{"spec", "n"}, `-1.5e3`},
		{[]string{"spec", "t"}, `true`},
		{[]string{"spec", "z"}, `null`},
		{[]string{"spec", "list"}, `[{"name":"no"},[]]`},
		{[]string{"spec", "name"}, ""},
		{[]string{"kind", "name"}, ""},
		{[]string{"spec", "list", "name"}, ""},
		{[]string{"nothing"}, ""},
	} {
		place := find([]byte(data), c.path...)
		got := ""
		if place.found() {
			got = string(place.of([]byte(data)))
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.path, got, c.want)
		}
	}
	if got := text([]byte(data), find([]byte(data), "metadata", "name")); got != `n<\` {
		t.Errorf("escaped text: %q", got)
	}
	if got := labelsOf([]byte(data)); got[`a"b`] != "1" || got["c"] != "2" || len(got) != 2 {
		t.Errorf("labels: %v", got)
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	data := []byte(`{"apiVersion":"g/v1","involvedObject":{"resourceVersion":"5"},"metadata":{"resourceVersion":""}}`)
	if got := string(atRevision(data, 12)); got != `{"apiVersion":"g/v1","involvedObject":{"resourceVersion":"5"},"metadata":{"resourceVersion":"12"}}` {
		t.Errorf("atRevision: %s", got)
	}
	if got := string(atVersion(data, "g/v1beta1")); got != `{"apiVersion":"g/v1beta1","involvedObject":{"resourceVersion":"5"},"metadata":{"resourceVersion":""}}` {
		t.Errorf("atVersion: %s", got)
	}
	if got := atVersion(data, "g/v1"); &got[0] != &data[0] {
		t.Error("the same version is copied")
	}
	if got := string(atRevision([]byte(`{"a":1}`), 1)); got != `{"a":1}` {
		t.Errorf("no metadata: %s", got)
	}
}

// FuzzScan compares the scanner with the library on everything that the library
// itself writes.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":{"b":[1,{"c":"\\\""}]},"z":"}"}`, `{"":{"":""}}`, `{"a":[],"b":{},"c":-0.1,"d":null}`, `{"é":"\u0000","<":">"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want map[string]any
		if json.Unmarshal(raw, &want) != nil || want == nil {
			return
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, data, span{0, len(data)}, want)
	})
}

func compare(t *testing.T, data []byte, place span, want map[string]any) {
	got := map[string]span{}
	eachMember(data, place, func(key []byte, value span) bool {
		got[unquote([]byte(`"`+string(key)+`"`))] = value
		return true
	})
	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
		t.Fatalf("members of %s: %q, want %q", place.of(data), a, b)
	}
	for name, value := range want {
		var decoded any
		if err := json.Unmarshal(got[name].of(data), &decoded); err != nil {
			t.Fatalf("%q of %s: %v", name, place.of(data), err)
		}
		if !sameValue(decoded, value) {
			t.Fatalf("%q: %v, want %v", name, decoded, value)
		}
		if s, ok := value.(string); ok && text(data, got[name]) != s {
			t.Fatalf("text %q, want %q", text(data, got[name]), s)
		}
		if child, ok := value.(map[string]any); ok {
			compare(t, data, got[name], child)
		}
	}
}
