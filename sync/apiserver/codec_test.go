package apiserver

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
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
		validation string
		warns      string // findings, joined by |
		refuses    string // words of the error; "" = none
	}{
		{name: "plain", body: `{` + good + `,"metadata":{"name":"a"},"spec":{"x":1}}`},
		{name: "unknown members", body: `{` + good + `,"z":1,"b":2,"metadata":{"name":"a","c":1,"labels":{"d":"e"}}}`,
			warns: `unknown field "metadata.c"|unknown field "b"|unknown field "z"`},
		{name: "unknown members, ignored", validation: "Ignore", body: `{` + good + `,"z":1}`},
		{name: "unknown members, strictly", validation: "Strict", body: `{` + good + `,"z":1}`,
			refuses: `strict decoding error: unknown field "z"`},
		{name: "member given twice", body: `{` + good + `,"spec":{"x":1,"x":2}}`, warns: `duplicate field "spec.x"`},
		{name: "member given twice, strictly", validation: "Strict", body: `{` + good + `,"spec":{"x":1,"x":2}}`,
			refuses: `duplicate field "spec.x"`},
		{name: "nulls are dropped", body: `{` + good + `,"metadata":{"name":"a","creationTimestamp":null},"status":null}`},
		{name: "no json", body: `{"apiVersion":"secret-canary`, refuses: "couldn't get version/kind; json parse error"},
		{name: "a list", body: `["secret-canary"]`, refuses: "json parse error"},
		{name: "null", body: `null`, refuses: "expected an object"},
		{name: "nothing", body: ``, refuses: "json parse error"},
		{name: "no kind", body: `{"apiVersion":"folder.grafana.app/v1","spec":{"token":"secret-canary"}}`, refuses: "Object 'Kind' is missing"},
		{name: "kind of a wrong type", body: `{"apiVersion":"folder.grafana.app/v1","kind":3}`, refuses: "Object 'Kind' is missing"},
		{name: "version of a wrong type", body: `{"apiVersion":3,"kind":"Folder"}`, refuses: "not a string"},
		{name: "no version", body: `{"kind":"Folder"}`, refuses: "the API version in the data () does not match"},
		{name: "other version", body: `{"apiVersion":"folder.grafana.app/v1beta1","kind":"Folder"}`,
			refuses: "the API version in the data (folder.grafana.app/v1beta1) does not match"},
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
			var warnings []string
			o := writeOptions{validation: validation, warnings: &warnings}
			obj, err := decodeBody(target{kind: folderKind(t), version: "v1"}, []byte(c.body), o)
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

// FuzzDecode: whatever a client sends, the outcome is an object that can be stored and scanned, or
// a 400.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"x":[1,{}]}}`,
		`{"kind":"Folder"}`, `[]`,
		`{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		k := folderKind(t)
		obj, err := decodeBody(target{kind: k, version: "v1"}, body, writeOptions{validation: "Warn"})
		if err != nil {
			if !apierrors.IsBadRequest(err) {
				t.Fatalf("%v is not a bad request", err)
			}
			return
		}
		data, err := (&plan{target: target{kind: k}, object: obj}).storedForm()
		if err != nil {
			t.Fatal(err)
		}
		if text(data, find(data, "metadata", "name")) != obj.GetName() || text(data, find(data, "kind")) != obj.GetKind() ||
			!find(data, "metadata", "resourceVersion").found() {
			t.Fatalf("stored as %s", data)
		}
	})
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	data := []byte(`{"apiVersion":"g/v1","involvedObject":{"resourceVersion":"5"},"metadata":{"resourceVersion":""}}`)
	if got := string(atRevision(data, 12)); got != `{"apiVersion":"g/v1","involvedObject":{"resourceVersion":"5"},"metadata":{"resourceVersion":"12"}}` {
		t.Errorf("atRevision: %s", got)
	}
	if got := string((target{kind: api.Kind{Group: "g"}, version: "v1beta1"}).inVersion(data)); got != `{"apiVersion":"g/v1beta1","involvedObject":{"resourceVersion":"5"},"metadata":{"resourceVersion":""}}` {
		t.Errorf("inVersion: %s", got)
	}
	if got := (target{kind: api.Kind{Group: "g"}, version: "v1"}).inVersion(data); &got[0] != &data[0] {
		t.Error("the same version is copied")
	}
	if got := string(atRevision([]byte(`{"a":1}`), 1)); got != `{"a":1}` {
		t.Errorf("no metadata: %s", got)
	}
}

// FuzzScan compares the scanner with the library on everything that the library itself writes.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":{"b":[1,{"c":"\\\""}]},"z":"}"}`, `{"":{"":""}}`, `{"a":[],"b":{},"c":-0.1,"d":null}`,
		`{"é":"\u0000","<":">"}`} {
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

func TestCutSpec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, rest, spec string }{
		{` {"kind": "Dashboard", "spec": {"a": [1, 2.50], "b": "1e9 }\"", "c<": -0}, "z": {"spec": 1}} `,
			`{"kind":"Dashboard","spec":{},"z":{"spec":1}}`, `{"a":[1,2.50],"b":"1e9 }\"","c<":-0}`},
		{body: `{"spec":{"a":1},"spec":{"a":2}}`},
		{body: `{"spec":{"a":1,"a":2}}`},
		{body: `{"spec":{"a":1},"sp\u0065c":{"a":2}}`},
		{body: `{"sp\u0065c":{"a":2}}`},
		{body: `{"spec":{"a":1e999}}`},
		{body: `{"spec":{"a":1` + strings.Repeat("0", longestNumber) + `}}`},
		{body: "{\"spec\":{\"a\":\"\xff\"}}"},
		{body: `{"spec":{"a":"\ud800"}}`},
		{body: `{"spec":null}`},
		{body: `{"spec":[]}`},
		{body: `{"kind":"Dashboard"}`},
		{body: `{"spec":{}`},
		{body: `[{"spec":{}}]`},
		{body: ``},
	} {
		want := c.rest
		if c.spec == "" {
			want = c.body
		}
		if rest, spec := cutSpec([]byte(c.body)); string(rest) != want || string(spec) != c.spec {
			t.Errorf("%s: %s and %s", c.body, rest, spec)
		}
	}
}

// FuzzCutSpec: the stored form of what is cut has the value of the body.
func FuzzCutSpec(f *testing.F) {
	for _, s := range []string{`{"spec":{"a":[1,-2.5,true,null,"\u00e9<"]},"a":1}`, `{"spec":{"a":1E5}}`, `{"spec":{"\ud83d\ude00":1,"":{}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		rest, spec := cutSpec(body)
		if spec == nil {
			return
		}
		if text, _ := jsontext.AppendFormat(nil, body, api.StrictJSON...); bytes.HasSuffix(rest, []byte(`"spec":{}}`)) &&
			bytes.HasSuffix(text, append(bytes.Clone(spec), '}')) {
			own := api.StrictBody{Text: text, Spec: len(spec)}
			if same, too := own.Cut(); !bytes.Equal(same, rest) || !bytes.Equal(too, spec) {
				t.Fatalf("%q was cut as %s and %s, by its maker as %s and %s", body, rest, spec, same, too)
			}
		}
		whole, findings, err := decodeMap(body)
		if err != nil || len(findings) > 0 {
			t.Fatalf("%q was cut: %v, %v", body, findings, err)
		}
		head, err := decodeObject(rest)
		if err != nil {
			t.Fatalf("%q: %v", rest, err)
		}
		form, err := encodeObject(head.Object)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := decodeObject(splice(form, find(form, "spec"), spec))
		if err != nil || !sameValue(stored.Object, whole) {
			t.Fatalf("%q was stored as %v, %v", body, stored, err)
		}
	})
}
