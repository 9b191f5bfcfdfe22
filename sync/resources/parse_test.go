package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	kjson "sigs.k8s.io/json"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

const classic = `{"uid":"cpu","id":7,"version":3,"title":"CPU","panels":[],"schemaVersion":39,"tags":["a"]}`

func file(p string) File {
	return File{Repository: "repo", Namespace: "default", Path: p, Kinds: kinds}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path, data string
		gv, object, spec string // expected
		err              string
	}{
		{name: "classic", path: "a/cpu.json", data: classic,
			gv: "dashboard.grafana.app/v0alpha1", object: "cpu", spec: `{"title":"CPU","panels":[],"schemaVersion":39,"tags":["a"]}`},
		{name: "classic without uid is named by its path", path: "a/cpu.json", data: `{"panels":[],"schemaVersion":1,"tags":[],"uid":null}`,
			gv: "dashboard.grafana.app/v0alpha1", object: FileID("repo", "a/cpu.json"), spec: `{"panels":[],"schemaVersion":1,"tags":[]}`},
		{name: "classic in YAML", path: "a.yaml", data: "uid: yam\npanels: []\nschemaVersion: 1\ntags: []\n",
			gv: "dashboard.grafana.app/v0alpha1", object: "yam", spec: `{"panels":[],"schemaVersion":1,"tags":[]}`},
		{name: "byte order mark and blanks", path: "a.json", data: "\xef\xbb\xbf \n" + classic,
			gv: "dashboard.grafana.app/v0alpha1", object: "cpu", spec: `{"title":"CPU","panels":[],"schemaVersion":39,"tags":["a"]}`},
		{name: "k8s JSON keeps its version and digits", path: "a.json",
			data: `{"apiVersion":"dashboard.grafana.app/v2beta1","kind":"Dashboard","metadata":{"name":"x"},"spec":{"n":12345678901234567890.10,"uid":"z","id":1,"version":2}}`,
			gv:   "dashboard.grafana.app/v2beta1", object: "x", spec: `{"n":12345678901234567890.10}`},
		{name: "k8s YAML with anchors", path: "a.yml",
			data: "apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: x, namespace: default}\nspec: {a: &a {b: 1}, c: *a, 1: yes}\n",
			gv:   "dashboard.grafana.app/v1", object: "x", spec: `{"1":true,"a":{"b":1},"c":{"b":1}}`},
		{name: "group without version", path: "a.json",
			data: `{"apiVersion":"dashboard.grafana.app","kind":"Dashboard","metadata":{"name":"x"},"spec":{}}`,
			gv:   "dashboard.grafana.app/", object: "x", spec: `{}`},
		{name: "escaped member names", path: "a.json", data: `{"\u0075id":"q","p\u0061nels":[],"schemaVersion":1,"tags":[]}`,
			gv: "dashboard.grafana.app/v0alpha1", object: "q", spec: `{"panels":[],"schemaVersion":1,"tags":[]}`},

		{name: "empty", path: "a.json", data: "", err: "the file is empty"},
		{name: "blank", path: "a.json", data: " \n\t", err: "the file is empty"},
		{name: "only a byte order mark", path: "a.json", data: "\xef\xbb\xbf", err: "the file is empty"},
		{name: "only a YAML comment", path: "a.yaml", data: "# nothing", err: "the file is empty"},
		{name: "place of a fault", path: "a.json", data: "{\n  \"a\": 1,\n}", err: "a.json:3:1: not JSON"},
		{name: "cut", path: "a.json", data: `{"a":`, err: "unexpected end of JSON input"},
		{name: "YAML in a JSON file", path: "a.json", data: "a: 1", err: "a.json:1:1: not JSON"},
		{name: "bad YAML", path: "a.yaml", data: "a: [", err: "line 1"},
		{name: "array", path: "a.json", data: `[1]`, err: "does not hold an object"},
		{name: "YAML scalar", path: "a.yaml", data: `hello`, err: "does not hold an object"},
		{name: "two documents", path: "a.yaml", data: "a: 1\n---\nb: 2\n", err: "more than one document"},
		{name: "UTF-16", path: "a.json", data: "\xff\xfe{\x00}\x00", err: "UTF-16"},
		{name: "not UTF-8", path: "a.json", data: "{\"a\":\"\xc3\x28\"}", err: "not valid UTF-8"},
		{name: "no dashboard", path: "package.json", data: `{"name":"x"}`, err: "nor a dashboard (no panels)"},
		{name: "no tags", path: "a.json", data: `{"panels":[],"schemaVersion":1}`, err: `no tags; add "tags": []`},
		{name: "answer of the HTTP API", path: "a.json", data: `{"meta":{},"dashboard":` + classic + `}`,
			err: `keep only the value of "dashboard"`},
		{name: "uid is a number", path: "a.json", data: `{"uid":5,"panels":[],"schemaVersion":1,"tags":[]}`, err: "uid is not text"},
		{name: "uid leaves its URL", path: "a.json", data: `{"uid":"../x","panels":[],"schemaVersion":1,"tags":[]}`, err: "uid"},
		{name: "alert rules", path: "a.yaml", data: "apiVersion: 1\ngroups: []\n", err: "apiVersion is missing or not text"},
		{name: "kind alone", path: "a.json", data: `{"kind":"Dashboard"}`, err: "apiVersion is missing"},
		{name: "no kind", path: "a.json", data: `{"apiVersion":"dashboard.grafana.app/v1"}`, err: "kind is missing"},
		{name: "no name", path: "a.json", data: `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{}}`,
			err: "metadata.name is missing"},
		{name: "no metadata", path: "a.json", data: `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard"}`,
			err: "metadata.name is missing"},
		{name: "metadata is text", path: "a.json", data: `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":"x"}`,
			err: "metadata is not an object"},
		{name: "name is a number", path: "a.json", data: `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":1}}`,
			err: "metadata.name is not text"},
		{name: "annotations are a list", path: "a.json",
			data: `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"x","annotations":[]}}`,
			err:  "metadata.annotations is not an object"},
		{name: "label is a number", path: "a.json",
			data: `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"x","labels":{"a":1}}}`,
			err:  "metadata.labels[a] is not text"},
		{name: "other namespace", path: "a.json",
			data: `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"x","namespace":"prod"}}`,
			err:  `metadata.namespace is "prod"`},
		{name: "folder as a file", path: "a.json", data: `{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"x"}}`,
			err: "a folder is a directory"},
		{name: "other kind", path: "a.yaml", data: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
			err: "kind Deployment of group apps is not in --resources"},
		{name: "disabled kind", path: "a.yaml", data: "apiVersion: playlist.grafana.app/v1\nkind: Playlist\nmetadata: {name: x}\n",
			err: "kind Playlist of group playlist.grafana.app is disabled by --resources"},
		{name: "a kind that no dashboard is keeps its spec", path: "a.yaml",
			data: "apiVersion: dashboard.grafana.app/v0alpha1\nkind: LibraryPanel\nmetadata: {name: x}\nspec: {uid: u, version: 2}\n",
			gv:   "dashboard.grafana.app/v0alpha1", object: "x", spec: `{"uid":"u","version":2}`},
		{name: "broken group", path: "a.json", data: `{"apiVersion":"a/b/c","kind":"Dashboard","metadata":{"name":"x"}}`, err: "not of the form"},
		{name: "depth bomb", path: "a.json", data: strings.Repeat(`{"a":`, 100_000), err: "nested deeper than 200"},
		{name: "depth bomb of arrays in YAML", path: "a.yaml", data: "a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300),
			err: "nested deeper than 200"},
		{name: "infinity", path: "a.yaml", data: "a: .inf", err: "no JSON form"},
		{name: "key is a list", path: "a.yaml", data: "? [a]\n: 1\n", err: "invalid map key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o, err := Parse(file(c.path), []byte(c.data))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), c.path) {
					t.Fatalf("error %v, want %q with the path", err, c.err)
				}
				if !IsWarning(err) {
					t.Errorf("%v is no warning", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if gv := o.GVK.Group + "/" + o.GVK.Version; gv != c.gv || o.Name != c.object {
				t.Errorf("got %s %s, want %s %s", gv, o.Name, c.gv, c.object)
			}
			if got := string(o.spec); got != c.spec {
				t.Errorf("spec %s, want %s", got, c.spec)
			}
		})
	}
}

// TestByteOrderMarks: they are removed from texts, as they are and escaped, in JSON and in YAML;
// nothing else is.
func TestByteOrderMarks(t *testing.T) {
	t.Parallel()
	want := `{"title":"AB","tags":["\\ufeff","x\n"],"panels":[],"schemaVersion":1}`
	for name, data := range map[string]string{
		"a.json": "\xef\xbb\xbf" + `{"title":"A` + "\xef\xbb\xbf" + `B","tags":["\\ufeff\uFeFF","\ufeffx\n"],"panels":[],"schemaVersion":1}`,
		"b.yaml": `{title: "A\uFEFFB", tags: ["\\ufeff", "` + "\xef\xbb\xbf" + `x\n"], panels: [], schemaVersion: 1}`,
	} {
		o, err := Parse(file(name), []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		var got, wanted any
		if json.Unmarshal(o.spec, &got) != nil || json.Unmarshal([]byte(want), &wanted) != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("%s: %s", name, o.spec)
		}
	}
}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", MaxObject)
	spaces := strings.Repeat(" ", MaxObject)
	for _, c := range []struct {
		name, path, data string
		tooLarge         bool
	}{
		{"2 MB of text", "a.json", `{"panels":[],"schemaVersion":1,"tags":["` + big + `"]}`, true},
		{"2 MB of blanks", "a.json", `{"panels":[],` + spaces + `"schemaVersion":1,"tags":[]}`, false},
		{"over what is read", "a.json", strings.Repeat(" ", MaxFile) + classic, true},
		{"over what YAML may be", "a.yaml", "a: " + strings.Repeat("x", MaxYAML), true},
		{"alias bomb by size", "a.yaml", "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a,", 400) + "]\n", true},
	} {
		_, err := Parse(file(c.path), []byte(c.data))
		var large *TooLargeError
		if errors.As(err, &large) != c.tooLarge {
			t.Errorf("%s: %.100v", c.name, err)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%s: the error repeats the file", c.name)
		}
	}
	// Nine levels of nine aliases are 3.4e8 values.
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ","))
	}
	if _, err := Parse(file("a.yaml"), []byte(bomb)); err == nil {
		t.Error("an alias bomb is read")
	}
}

func TestGenerateNameIsStable(t *testing.T) {
	t.Parallel()
	data := []byte(`{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"generateName":"web-"},"spec":{}}`)
	names := map[string]bool{}
	for range 3 {
		o, err := Parse(file("a/b.json"), data)
		if err != nil {
			t.Fatal(err)
		}
		names[o.Name] = true
		if !strings.HasPrefix(o.Name, "web-") || len(o.Name) < 8 {
			t.Errorf("name %q", o.Name)
		}
	}
	if len(names) != 1 {
		t.Errorf("one file has the names %v", names)
	}
	f := file("a/b.json")
	f.Known = "web-xyz12"
	if o, _ := Parse(f, data); o.Name != "web-xyz12" {
		t.Errorf("the name on the server is not kept: %q", o.Name)
	}
	f.Known = "other"
	if o, _ := Parse(f, data); o.Name == "other" {
		t.Error("a name of another prefix is taken")
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	data := `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","status":{"x":1},"metadata":{"name":"x","uid":"old","resourceVersion":"9",
	 "generation":4,"creationTimestamp":"2024-01-01T00:00:00Z","managedFields":[{}],"finalizers":["a/b"],
	 "labels":{"grafana.app/deprecatedInternalID":"7","team":"a"},
	 "annotations":{"grafana.app/managerAllowsEdits":"true","grafana.app/folder":"elsewhere","grafana.app/sourceTimestamp":"1","note":"n"}},
	 "spec":{"title":"T","uid":"u"},"extra":[1, 2]}`
	o, err := Parse(file("a/x.json"), []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	stamp := Stamp{Namespace: "default", Repository: "repo", Path: "a/x.json", Checksum: "abc", Folder: "f1"}
	const annotations = `"annotations":{"grafana.app/folder":"f1","grafana.app/managedBy":"repo","grafana.app/managerId":"repo",` +
		`"grafana.app/sourceChecksum":"abc","grafana.app/sourcePath":"a/x.json","note":"n"}`
	create := `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{` + annotations +
		`,"labels":{"team":"a"},"name":"x","namespace":"default"},"spec":{"title":"T"},"extra":[1,2]}`
	if got := string(o.Body("v1", stamp)); got != create {
		t.Errorf("create\n got %s\nwant %s", got, create)
	}
	stamp.Replaces = &Live{Meta: Meta{UID: "live", ResourceVersion: "12", Finalizers: []string{"f/z"},
		OwnerReferences: []json.RawMessage{json.RawMessage(`{"name":"o"}`)}}}
	update := `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{` + annotations +
		`,"finalizers":["f/z"],"labels":{"team":"a"},"name":"x","namespace":"default","ownerReferences":[{"name":"o"}],"resourceVersion":"12","uid":"live"},"spec":{"title":"T"},"extra":[1,2]}`
	if got := string(o.Body("v1", stamp)); got != update {
		t.Errorf("update\n got %s\nwant %s", got, update)
	}
	if got := string(o.Body("v1", Stamp{Namespace: "default", Repository: "repo"})); strings.Contains(got, "sourcePath") ||
		strings.Contains(got, "grafana.app/folder") {
		t.Errorf("empty annotations are written: %s", got)
	}
}

func TestParseFolderFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, uid, title, err string }{
		{`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"stable-uid"},"spec":{"title":"Display Name"}}`, "stable-uid",
			"Display Name", ""},
		{`{"metadata":{"name":"x"}}`, "x", "", ""},
		{`{"metadata":{}}`, "", "", "metadata.name is missing"},
		{`{"metadata":{"name":"a/b"}}`, "", "", "has '/'"},
		{`{"metadata":{"name":"` + strings.Repeat("x", 41) + `"}}`, "", "", "41 bytes"},
		{`{"kind":"Dashboard","metadata":{"name":"x"}}`, "", "", "kind is"},
		{`{"metadata":{"name":7}}`, "", "", "metadata.name is a number"},
		{``, "", "", "empty"},
		{`{`, "", "", "_folder.json:1:1: not JSON"},
	} {
		m := ParseFolderFile("a/"+repopath.FolderFile, "h", []byte(c.data))
		if m.UID != c.uid || m.Title != c.title || m.Hash != "h" || (m.Err == nil) != (c.err == "") {
			t.Errorf("%s: %+v", c.data, m)
		}
		if m.Err != nil && (!strings.Contains(m.Err.Error(), c.err) || !strings.Contains(m.Err.Error(), "a/"+repopath.FolderFile) ||
			!IsWarning(m.Err)) {
			t.Errorf("%s: %v", c.data, m.Err)
		}
	}
}

// TestPlainNumbers: what split says of numbers.
func TestPlainNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"a":[1,-2.50,true,false,null,"1e9 2E5"],"1e5":{"e":-0}}`: true,
		`{"a":1e9}`:          false,
		`{"a":[[1],-1.5E7]}`: false,
		`{"a":1` + strings.Repeat("0", longestNumber) + `}`:   false,
		`{"a":[1` + strings.Repeat("0", longestNumber) + `]}`: false,
	} {
		if _, plain, err := split([]byte(text)); plain != want || err != nil {
			t.Errorf("%s: %v, %v", text, plain, err)
		}
	}
}

// FuzzDecodeJSON: a file is JSON, and has the compact form, that encoding/json says.
func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":1}`, `{"a":1, "a":2}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`, `{"a":01}`, `{"a":1e999,}`, "{\"a\":\"\x01\"}",
		`{"\ud800":[{}, []], "c\"": "x\\\""}`, `{"a":"\u00"}`, `{"a" "b"}`, `[1,]`, `nul`, `{"a":"`, `{"a":"\`,
		"{0", "{\n                   \"a\": [\n                  true, -0.5e+7, null]}", `{"abcdefgh\\\"i":"12345678\u00eg"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkDepth(data) != nil || bytes.Contains(data, []byte("\ufeff")) || escapedBOM.Match(data) {
			return
		}
		var compact bytes.Buffer
		valid := json.Compact(&compact, data) == nil
		if CheckJSON("a.json", data) == nil != valid {
			t.Fatalf("%q: valid should be %v", data, valid)
		}
		if _, ok := fieldsOf(data); ok != (valid && compact.Bytes()[0] == '{') {
			t.Fatalf("%q: members: %v", data, ok)
		}
		got, strict, err := decodeJSON(data, MaxFile)
		if own := jsontext.Value(bytes.Clone(got)); strict && (own.Compact(api.StrictJSON...) != nil || !bytes.Equal(own, got)) {
			t.Fatalf("%q became %q, which is not strict", data, got)
		}
		if is := valid && compact.Bytes()[0] == '{'; err == nil != is || is && !bytes.Equal(got, compact.Bytes()) {
			t.Fatalf("%q became %q, %v", data, got, err)
		}
		if err != nil {
			return
		}
		dec := json.NewDecoder(&compact)
		_, _ = dec.Token()
		fields, plain, _ := split(got)
		if strict && plain && kjson.UnmarshalCaseSensitivePreserveInts(got, &map[string]any{}) != nil {
			t.Fatalf("%q has numbers that cannot be read", got)
		}
		for _, m := range fields {
			var value json.RawMessage
			if name, err := dec.Token(); err != nil || name != m.name || dec.Decode(&value) != nil || !bytes.Equal(value, m.value) {
				t.Fatalf("%q has %v (%v), not %q: %s", data, name, err, m.name, m.value)
			}
		}
		if dec.More() {
			t.Fatalf("%q has more members", data)
		}
	})
}

// FuzzParse checks what must hold for every file: an answer in bounded space, and for each object
// that is read a body that is JSON, says whose it is and holds nothing that only a server may
// write.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		classic, "", "{}", "[]", "\xef\xbb\xbf{}", `{"a":{"a":[{}]}}`, `{"a":"\\\"}"}`, "a: &a [*a]", "a: &x b\nc: *x", "? {a: b}\n: c",
		`{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"x","labels":{},"annotations":{"a":"b"}},"spec":{"uid":1}}`,
		`{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"x"},"spec":null,"spec":{"id":2}}`,
		`{"panels":null,"schemaVersion":1,"tags":[]}`, "apiVersion: 1", "--- \n...\n--- a", `{"\ud800":1}`,
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, data string, isJSON bool) {
		p := "dir/file.yaml"
		if isJSON {
			p = "dir/file.json"
		}
		o, err := Parse(file(p), []byte(data))
		if err != nil {
			if !IsWarning(err) || !strings.Contains(err.Error(), p) {
				t.Fatalf("error %v", err)
			}
			return
		}
		body := o.Body("v1", Stamp{Namespace: "default", Repository: "repo", Path: p, Checksum: "sum", Folder: "f"})
		var got struct {
			APIVersion, Kind string
			Metadata         map[string]any
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("body %q: %v", body, err)
		}
		if got.Kind != "Dashboard" || got.APIVersion != "dashboard.grafana.app/v1" || got.Metadata["name"] != o.Name {
			t.Fatalf("body %s", body)
		}
		annotations, _ := got.Metadata["annotations"].(map[string]any)
		if annotations["grafana.app/managerId"] != "repo" || annotations["grafana.app/sourcePath"] != p ||
			annotations["grafana.app/managerAllowsEdits"] != nil {
			t.Fatalf("annotations %v", annotations)
		}
		for _, key := range []string{"uid", "resourceVersion", "managedFields", "generateName"} {
			if got.Metadata[key] != nil {
				t.Fatalf("metadata.%s is written", key)
			}
		}
		again, err := Parse(file("dir/file.json"), body)
		if err != nil || again.Name != o.Name {
			t.Fatalf("the body does not read back: %v", err)
		}
	})
}

// TestJudge: all that is wrong with a file is told at once, and what a directory may have is no
// fault there.
func TestJudge(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("u", 45)
	for _, c := range []struct {
		name, data     string
		api, directory []string // the faults
	}{
		{"classic", classic, nil, nil},
		{"rows", `{"uid":"a","title":"A","rows":[]}`, []string{"newer Grafana"}, nil},
		{"neither schemaVersion nor tags", `{"uid":"a","title":"A","panels":[]}`, []string{"schemaVersion", "tags"}, nil},
		{"no title", `{"uid":"a","title":" ","panels":[],"schemaVersion":1,"tags":[]}`, []string{"title"}, []string{"title"}},
		{"all at once", `{"uid":"` + long + `","panels":[]}`, []string{"schemaVersion", "tags", "45 characters, Grafana takes at most 40", "title"},
			[]string{"45 characters, Grafana takes at most 40", "title"}},
		{"a resource", `{"apiVersion":"dashboard.grafana.app/v2","kind":"Dashboard","metadata":{"name":"` + long + `","namespace":"x"},"spec":{}}`,
			[]string{"namespace", "45", "title"}, []string{"namespace", "45", "title"}},
		{"no dashboard", `{"title":"x"}`, []string{"neither a resource"}, []string{"neither a resource"}},
		{"more than a request may have", `{"title":"A","panels":["` + strings.Repeat("x", MaxObject) + `"],"schemaVersion":1,"tags":[]}`,
			[]string{"too large"}, nil},
	} {
		for directory, want := range map[bool][]string{false: c.api, true: c.directory} {
			f := file("a.json")
			f.Directory = directory
			_, err := Judge(f, []byte(c.data))
			if (err == nil) != (want == nil) || err != nil && !IsWarning(err) {
				t.Errorf("%s, directory %v: %v", c.name, directory, err)
				continue
			}
			if faults, are := errors.AsType[Faults](err); are && len(faults) != len(want) {
				t.Errorf("%s, directory %v: %d faults %v", c.name, directory, len(faults), err)
			}
			for _, part := range want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s, directory %v: %q is not in %v", c.name, directory, part, err)
				}
			}
		}
	}
}
