package manifests

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/api/admission"
	"limpet/sync/fileid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	env := map[string]string{"TOKEN": "s3cr3t", "EMPTY": "", "NESTED": "${TOKEN}"}
	const head = "apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata: {name: r}\n"
	for _, c := range []struct {
		name, text string
		want       string // JSON of the objects
		warnings   int
		fault      string // what the error holds
	}{
		{"two documents", head + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: other}\n",
			`[{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r","namespace":"default"}},
			  {"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"other"}}]`, 0, ""},
		{"JSON", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`,
			`[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default"}}]`, 0, ""},
		{"a List", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}]}`,
			`[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default"}}]`, 0, ""},
		{"comments", "# nothing here\n---\n# nor here\n---\n", "", 0, "f.yaml: no object is declared"},
		{"document on the line of its mark", "--- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n", "", 0,
			"invalid Yaml document separator"},
		{"carriage returns", "---\r\napiVersion: v1\r\nkind: Secret\r\nmetadata: {name: s}\r\n---\r\n",
			`[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default"}}]`, 0, ""},
		{"dashes inside a text", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: |\n    x\n    ---\n    y\n",
			`[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default"},"stringData":{"a":"x\n---\ny\n"}}]`, 0, ""},
		{"what a server added", "apiVersion: v1\nkind: Secret\nmetadata: {name: s, uid: x, resourceVersion: '1', generation: 3, creationTimestamp: null, managedFields: []}\nstatus: {}\n",
			`[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default"}}]`, 0, ""},
		{"other kinds", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", `null`, 1, ""},
		{"other kinds with unknown variables", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: '${ABSENT}'}\n", `null`, 1, ""},

		{"variables", head + "spec: {a: '${TOKEN}', b: '$__env{TOKEN}', c: 'x${TOKEN}y$__env{EMPTY}z', d: [1, '${TOKEN}'], e: '$TOKEN $ $$ {TOKEN}'}\n",
			`[{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r","namespace":"default"},
			   "spec":{"a":"s3cr3t","b":"s3cr3t","c":"xs3cr3tyz","d":[1,"s3cr3t"],"e":"$TOKEN $ $$ {TOKEN}"}}]`, 0, ""},
		{"escapes", head + "spec: {a: '$${TOKEN}', b: '$$__env{TOKEN}', c: '$$__file{x}', d: 'pa$$word'}\n",
			`[{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r","namespace":"default"},
			   "spec":{"a":"${TOKEN}","b":"$__env{TOKEN}","c":"$__file{x}","d":"pa$$word"}}]`, 0, ""},
		{"what was put in stays", head + "spec: {a: '${NESTED}'}\n",
			`[{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"r","namespace":"default"},"spec":{"a":"${TOKEN}"}}]`, 0, ""},
		{"dashboards keep theirs", "apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: d}\nspec: {title: '${datasource}'}\n",
			`[{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":"d","namespace":"default"},"spec":{"title":"${datasource}"}}]`, 0, ""},

		{"unknown variable", head + "secure: {token: {create: '${ABSENT}'}}\n", "", 0,
			"f.yaml: document 1: secure.token.create: environment variable ABSENT is not set"},
		{"unknown variable in a list", head + "spec: {workflows: [a, '$__env{ABSENT}']}\n", "", 0,
			"spec.workflows[1]: environment variable ABSENT is not set"},
		{"not a variable", head + "spec: {a: '${TOKEN:-x}'}\n", "", 0, "is not the name of an environment variable"},
		{"no name", head + "spec: {a: '${}'}\n", "", 0, "is not the name of an environment variable"},
		{"not closed", head + "spec: {a: 'x${TOKEN'}\n", "", 0, "without its closing brace"},
		{"no such file", head + "spec: {a: '$__file{absent.txt}'}\n", "", 0, "no such file"},
		{"file without name", head + "spec: {a: '$__file{}'}\n", "", 0, "names no file"},
		{"not YAML", "a: [1\n", "", 0, "f.yaml:"},
		{"not YAML further down", head + "---\n\n# comment\nkind: Secret\n  bad: 1\n", "", 0, "f.yaml: document 2: "},
		{"a member twice", head + "spec: {}\nspec: {}\n", "", 0, "f.yaml: document 1: "},
		{"a list", "- a\n- b\n", "", 0, "f.yaml: document 1: a document must be an object"},
		{"a text", "hello\n", "", 0, "a document must be an object"},
		{"no kind", "metadata: {name: x}\n", "", 0, "apiVersion and kind"},
		{"an item that is none", "apiVersion: v1\nkind: List\nitems: [3]\n", "", 0, "whose items are no objects"},
		{"no name at all", "apiVersion: v1\nkind: Secret\n", "", 0, "without metadata.name"},
		{"generated name", "apiVersion: v1\nkind: Secret\nmetadata: {generateName: x-}\n", "", 0, "without metadata.name"},
		{"unknown version", "apiVersion: provisioning.grafana.app/v9\nkind: Repository\nmetadata: {name: r}\n", "", 0, "use one of v0alpha1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := file{name: "f.yaml"}
			err := got.parse([]byte(c.text), testExpander(t, env), Options{})
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Fatalf("error %v, want %q", err, c.fault)
				}
				if len(got.objects) > 0 {
					t.Error("objects beside an error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.warnings) != c.warnings {
				t.Errorf("warnings %q, want %d", got.warnings, c.warnings)
			}
			var objects []any
			for _, o := range got.objects {
				objects = append(objects, o.Object)
			}
			if have, want := compact(t, objects), compact(t, json.RawMessage(c.want)); have != want {
				t.Errorf("got  %s\nwant %s", have, want)
			}
		})
	}
}

func compact(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	var plain any
	if err == nil {
		err = json.Unmarshal(data, &plain)
	}
	if err == nil {
		data, err = json.Marshal(plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// FuzzParse: no file makes the parser fall over, errors name the file, and
// all objects have what the API needs of them.
func FuzzParse(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\nkind: x\n"))
	f.Add([]byte("--- {apiVersion: v1, kind: List, items: [{}]}\n"))
	f.Add([]byte("a: [\n---\n%\n"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: [1]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: 3, annotations: 4}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		x := &expander{lookup: func(string) (string, bool) { return "v", true }}
		if strings.Contains(string(data), "__file{") {
			return
		}
		got := file{name: "f.yaml"}
		err := got.parse(data, x, Options{})
		if err != nil && !strings.HasPrefix(err.Error(), "f.yaml: ") {
			t.Errorf("fault %v", err)
		}
		for _, o := range got.objects {
			if o.GetName() == "" || o.GetKind() != o.kind.Kind {
				t.Errorf("object %+v", o)
			}
			_ = admission.Check(o.Unstructured, nil)
		}
	})
}

func testExpander(t testing.TB, env map[string]string) *expander {
	t.Helper()
	read := func(path string) ([]byte, error) { return fileid.Read(path, fileid.MaxSettings) }
	return &expander{dir: t.TempDir(), read: read, lookup: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}
}

func TestFileReference(t *testing.T) {
	t.Parallel()
	x := testExpander(t, nil)
	if err := os.WriteFile(filepath.Join(x.dir, "token"), []byte("  s3cr3t ${X}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"token", filepath.Join(x.dir, "token")} {
		if got, err := x.text("<$__file{" + path + "}>"); err != nil || got != "<s3cr3t ${X}>" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if _, err := x.text("$__file{.}"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory gives %v", err)
	}
	if err := os.WriteFile(filepath.Join(x.dir, "large"), make([]byte, fileid.MaxSettings+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := x.text("$__file{large}"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file gives %v", err)
	}
}

// TestChanged: a file is read again when its stamp has changed or may hide a change, and with all
// others.
func TestChanged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	write := func(text string) {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour))); err != nil {
			t.Fatal(err)
		}
	}
	f := &file{paths: []string{path}, stamps: make([]fileid.Stamp, 1)}
	for i, step := range []struct {
		do          func()
		whole, want bool
	}{
		{func() { write("1") }, false, true},
		{func() { f.sum = [32]byte{} }, false, false}, // as it would be after a change that no stamp shows
		{func() {}, true, true},
		{func() { f.sum, f.read = [32]byte{}, f.read.Add(-time.Hour) }, false, true},
		{func() { write("2") }, false, true},
		{func() { _ = os.Remove(path) }, false, true},
		{func() {}, false, false},
		{func() { write("2") }, false, true},
	} {
		step.do()
		got := f.changed(step.whole)
		if got != step.want {
			t.Fatalf("step %d: changed = %v", i, got)
		}
		if got {
			sum := sha256.New()
			_, _ = f.readInto(sum, 0)
			f.sum = [32]byte(sum.Sum(nil))
		}
	}
	write(strings.Repeat("x", fileid.MaxSettings+1))
	if f.changed(false); f.stamps[0] != (fileid.Stamp{}) {
		t.Error("a file that cannot be read is taken for one that has not changed")
	}
}

// FuzzExpand: text without a dollar sign is left alone, an escaped text comes
// out as it was, and what a variable holds is never looked at again.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$", "$$", "${A}", "$${A}", "$__env{A}", "$__file{", "${", "${A}${A}", "a${A}b$${A}c",
		"$__file{/dev/null}", "${${A}}", "$$$${A}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const value = "${A}$__env{A}"
		x := &expander{dir: t.TempDir(), lookup: func(name string) (string, bool) { return value, name == "A" }}
		if strings.Contains(text, "__file{") {
			return // the disk of the test is not part of it
		}
		out, err := x.text(text)
		if !strings.Contains(text, "$") && (err != nil || out != text) {
			t.Errorf("%q became %q, %v", text, out, err)
		}
		if err == nil && len(out) > len(text)*len(value)+len(value) {
			t.Errorf("%q grew to %q", text, out)
		}
		escaped := strings.NewReplacer("${", "$${", "$__env{", "$$__env{").Replace(strings.ReplaceAll(text, "$$", "$"))
		if !strings.Contains(escaped, "$$$") {
			want := strings.ReplaceAll(text, "$$", "$")
			if out, err := x.text(escaped); err != nil || out != want {
				t.Errorf("%q escaped as %q became %q, %v", want, escaped, out, err)
			}
		}
	})
}
