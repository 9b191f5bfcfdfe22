package drift

import (
	"slices"
	"strings"
	"testing"

	"limpet/sync/api"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	object := func(meta, spec string) string {
		return `{"apiVersion":"d/v1","kind":"Dashboard","metadata":{"name":"a"` + meta + `},"spec":` + spec + `}`
	}
	same := object("", `{"title":"A","panels":[{"id":1},{"id":2}],"n":1}`)
	for name, c := range map[string]struct{ git, live, ignore, want string }{
		"the same":           {same, same, "", ""},
		"numbers":            {same, object("", `{"n":1.0,"panels":[{"id":1e0},{"id":2}],"title":"A"}`), "", ""},
		"version of the API": {same, strings.Replace(same, "d/v1", "d/v2", 1), "", ""},
		"what the server writes": {same, object(`,"uid":"u","generation":3,"annotations":{"grafana.app/updatedTimestamp":"x"},"labels":{"x":"y"}`,
			`{"title":"A","panels":[{"id":1},{"id":2}],"n":1,"id":7,"uid":"a","version":3,"iteration":4,"x":null}`), "", ""},
		"another version":  {same, strings.TrimSuffix(same, "}") + `,"status":{"conversion":{"failed":true,"storedVersion":"v2"}}}`, "", "/apiVersion"},
		"converted":        {same, strings.TrimSuffix(same, "}") + `,"status":{"conversion":{"failed":false,"storedVersion":"v2"}}}`, "", ""},
		"status":           {same, strings.TrimSuffix(same, "}") + `,"status":{"a":1}}`, "", ""},
		"a member":         {same, strings.Replace(same, `"A"`, `"B"`, 1), "", "/spec/title"},
		"an element":       {same, strings.Replace(same, `{"id":2}`, `{"id":3}`, 1), "", "/spec/panels/1/id"},
		"one more":         {same, strings.Replace(same, `{"id":2}`, `{"id":2},{}`, 1), "", "/spec/panels/2"},
		"one less":         {same, strings.Replace(same, `,{"id":2}`, ``, 1), "", "/spec/panels/1"},
		"another type":     {same, strings.Replace(same, `"n":1`, `"n":"1"`, 1), "", "/spec/n"},
		"escaped":          {object("", `{"a/b~c":1}`), object("", `{"a/b~c":2}`), "", "/spec/a~1b~0c"},
		"ignored":          {object("", `{"a/b":1,"c":[1]}`), object("", `{"a/b":2,"c":[3]}`), "/spec/a~1b,\n /spec/c/0", ""},
		"ignored in each":  {same, strings.ReplaceAll(same, `"id":`, `"x":1,"id":4`), "/spec/panels/*/id, /spec/panels/*/x", ""},
		"ignored, and not": {same, strings.Replace(strings.Replace(same, `"A"`, `"B"`, 1), `"n":1`, `"n":2`, 1), "/spec/n", "/spec/title"},
		"no spec":          {same, `{"metadata":{"name":"a"},"kind":"Dashboard"}`, "", "/spec"},
		"labels of the file": {object(`,"labels":{"team":"a"}`, `{}`), object(`,"labels":{"team":"b"}`, `{}`), "",
			"/metadata/labels/team"},
		"folder": {object(`,"annotations":{"grafana.app/folder":"f"}`, `{}`), object(`,"annotations":{"grafana.app/folder":"g"}`, `{}`), "",
			"/metadata/annotations/grafana.app~1folder"},
		"root": {same, strings.Replace(same, `"a"}`, `"a","annotations":{"grafana.app/folder":"general"}}`, 1), "", ""},
	} {
		ignore, err := api.ParsePointers(c.ignore)
		if err != nil {
			t.Fatal(err)
		}
		got, git, live, err := Compare([]byte(c.git), []byte(c.live), ignore)
		if err != nil || strings.Join(got, " ") != c.want || (string(git) == string(live)) != (c.want == "") {
			t.Errorf("%s: %q %v, want %q\n%s\n%s", name, got, err, c.want, git, live)
		}
	}
	if _, git, live, err := Compare([]byte(same), nil, nil); git == nil || live != nil || err != nil {
		t.Errorf("%s %s %v", git, live, err)
	}
	if _, git, live, err := Compare(nil, []byte(same), nil); git != nil || live == nil || err != nil {
		t.Errorf("%s %s %v", git, live, err)
	}
	if _, _, _, err := Compare([]byte(same), []byte("[1]"), nil); err == nil {
		t.Error("a list is an object")
	}
	many := strings.Repeat("1,", 100)
	more := strings.ReplaceAll(many, "1", "2")
	if got, _, _, _ := Compare([]byte(object("", "["+many+"1]")), []byte(object("", "["+more+"1]")), nil); len(got) != maxPointers {
		t.Errorf("%d pointers", len(got))
	}
	if got := Files([]byte(`{"a":1}`), []byte(`{"a":2}`)); !slices.Equal(got, []string{"/a"}) || Files([]byte("x"), []byte("{}")) != nil {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"spec", "/", "/a//b", "/a/", "/a~2", "/a~", strings.Repeat("/a,", 101)} {
		if _, err := api.ParsePointers(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
