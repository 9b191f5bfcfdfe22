package apiserver

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
)

func folderKind(t testing.TB) api.Kind {
	t.Helper()
	k, ok := kindOf(api.FolderGroup, "folders")
	if !ok {
		t.Fatal("no folders")
	}
	return k
}

func TestDecodeBody(t *testing.T) {
	t.Parallel()
	const good = `"apiVersion":"folder.grafana.app/v1","kind":"Folder"`
	for _, c := range []struct {
		name, body string
		yaml       bool
		validation string
		warns      string // findings, joined by |
		refuses    string // words of the error; "" = none
	}{
		{name: "plain", body: `{` + good + `,"metadata":{"name":"a"},"spec":{"x":1}}`},
		{name: "yaml", yaml: true, body: "apiVersion: folder.grafana.app/v1\nkind: Folder\nspec: {x: 1}\n"},
		{name: "unknown members", body: `{` + good + `,"z":1,"b":2,"metadata":{"name":"a","c":1,"labels":{"d":"e"}}}`,
			warns: `unknown field "metadata.c"|unknown field "b"|unknown field "z"`},
		{name: "unknown members that nobody asks for", validation: "Ignore", body: `{` + good + `,"z":1}`},
		{name: "unknown members, strictly", validation: "Strict", body: `{` + good + `,"z":1}`, refuses: `strict decoding error: unknown field "z"`},
		{name: "member given twice", body: `{` + good + `,"spec":{"x":1,"x":2}}`, warns: `duplicate field "spec.x"`},
		{name: "member given twice, strictly", validation: "Strict", body: `{` + good + `,"spec":{"x":1,"x":2}}`, refuses: `duplicate field "spec.x"`},
		{name: "member given twice in yaml", yaml: true, body: "apiVersion: folder.grafana.app/v1\nkind: Folder\nspec:\n  x: 1\n  x: 2\n", warns: `line 5: key "x" already set in map`},
		{name: "nulls are dropped", body: `{` + good + `,"metadata":{"name":"a","creationTimestamp":null},"status":null}`},
		{name: "no json", body: `{"apiVersion":"secret-canary`, refuses: "couldn't get version/kind; json parse error"},
		{name: "a list", body: `["secret-canary"]`, refuses: "json parse error"},
		{name: "null", body: `null`, refuses: "expected an object"},
		{name: "nothing", body: ``, refuses: "json parse error"},
		{name: "no kind", body: `{"apiVersion":"folder.grafana.app/v1","spec":{"token":"secret-canary"}}`, refuses: "Object 'Kind' is missing"},
		{name: "kind of a wrong type", body: `{"apiVersion":"folder.grafana.app/v1","kind":3}`, refuses: "Object 'Kind' is missing"},
		{name: "version of a wrong type", body: `{"apiVersion":3,"kind":"Folder"}`, refuses: "not a string"},
		{name: "no version", body: `{"kind":"Folder"}`, refuses: "the API version in the data () does not match"},
		{name: "other version", body: `{"apiVersion":"folder.grafana.app/v1beta1","kind":"Folder"}`, refuses: "the API version in the data (folder.grafana.app/v1beta1) does not match"},
		{name: "labels of a wrong type", body: `{` + good + `,"metadata":{"labels":{"a":1}}}`, refuses: "cannot unmarshal number"},
		{name: "metadata of a wrong type", body: `{` + good + `,"metadata":"secret-canary"}`, refuses: "cannot unmarshal string"},
		{name: "time of a wrong form", body: `{` + good + `,"metadata":{"creationTimestamp":"yesterday"}}`, refuses: "parsing time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			validation := c.validation
			if validation == "" {
				validation = "Warn"
			}
			obj, warnings, err := decodeBody(folderKind(t), "v1", []byte(c.body), c.yaml, validation)
			if c.refuses != "" {
				if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), c.refuses) || strings.Contains(err.Error(), "secret-canary") {
					t.Errorf("%v, want %q and nothing of the body", err, c.refuses)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(warnings, "|"); got != c.warns {
				t.Errorf("warnings %q, want %q", got, c.warns)
			}
			for name := range obj.Object {
				if !strings.Contains("apiVersion kind metadata spec", name) {
					t.Errorf("%q is kept", name)
				}
			}
		})
	}
}

// Whole numbers stay whole, and large ones exact.
func TestDecodeNumbers(t *testing.T) {
	t.Parallel()
	obj, _, err := decodeBody(folderKind(t), "v1", []byte(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","spec":{"a":9007199254740993,"b":1.0,"c":1.5}}`), false, "Strict")
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodeObject(obj.Object)
	if err != nil || !strings.Contains(string(data), `{"a":9007199254740993,"b":1,"c":1.5}`) {
		t.Errorf("%s %v", data, err)
	}
}

// FuzzDecode: whatever a client sends, the outcome is an object that can be
// stored and scanned, or a 400.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"x":[1,{}]}}`,
		`{"kind":"Folder"}`, `[]`, "apiVersion: folder.grafana.app/v1\nkind: Folder\nmetadata: {name: &a x, labels: {b: *a}}\n", "a: !!binary x", `{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, isYAML bool) {
		k := folderKind(t)
		obj, _, err := decodeBody(k, "v1", body, isYAML, "Warn")
		if err != nil {
			if !apierrors.IsBadRequest(err) {
				t.Fatalf("%v is not a bad request", err)
			}
			return
		}
		data, err := storedForm(k, obj)
		if err != nil {
			t.Fatal(err)
		}
		if text(data, find(data, "metadata", "name")) != obj.GetName() || text(data, find(data, "kind")) != obj.GetKind() || !find(data, "metadata", "resourceVersion").found() {
			t.Fatalf("stored as %s", data)
		}
	})
}
