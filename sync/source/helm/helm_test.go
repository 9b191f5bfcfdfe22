package helm_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"runtime"
	"strings"
	"testing"

	"limpet/sync/source/archive"
	"limpet/sync/source/helm"
)

// versions returns NAME VERSION of what an index has.
func versions(t *testing.T, index, chart string) string {
	t.Helper()
	found, err := helm.Versions(strings.NewReader(index), chart)
	if err != nil {
		t.Fatalf("%v\n%s", err, index)
	}
	var out []string
	for _, v := range found {
		out = append(out, v.Name+" "+v.Version)
	}
	return strings.Join(out, ", ")
}

// TestIndex: each form in which indexes are written has the same versions, and what Helm would not
// take is left out.
func TestIndex(t *testing.T) {
	t.Parallel()
	const site = `{"name":"site","version":"1.0.0","digest":"ab","urls":["a.tgz"]}`
	for name, index := range map[string]string{
		"of helm": "apiVersion: v1\nentries:\n  other:\n  - name: other\n    version: 1.0.0\n  site:\n  - annotations:\n      a: |\n        - name: x\n\n" +
			"        # text\n        entries:\n    name: site\n    urls:\n    - a.tgz\n    version: 1.0.0\ngenerated: now\n",
		"indented":    "entries:\n    \"site\":\n        - name: site\n          version: '1.0.0'\n          urls: [a.tgz]\n",
		"flow":        "entries: {site: [{name: site, version: 1.0.0}]}\n",
		"a flow list": "# x\r\nentries:\r\n  site: [" + site + "]\r\n",
		"json":        `{"apiVersion":"v1","entries":{"site":[` + site + `]}}`,
		"invalid ones": "entries:\n  site:\n  - name: site\n    version: 1.0.0\n  - name: site\n    version: one\n  - version: 2.0.0\n  -\n" +
			"  - {name: a/b, version: 1.0.0}\n  - {name: site, version: 1.0.0, type: other}\n  none:\n  - null\n",
	} {
		if got := versions(t, index, "site"); got != "site 1.0.0" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := versions(t, "apiVersion: v1\nentries: {}\n", ""); got != "" {
		t.Error(got)
	}
	for name, index := range map[string]string{
		"empty": "", "a page": "<html>\n</html>\n", "a list": "- a\n", "a list of JSON": "[]", "no entries": "apiVersion: v1\n",
		"less indent": "entries:\n    a:\n    - name: a\n  b:\n", "no name": "entries:\n  - a\n  b\n", "no yaml": "entries:\n  a:\n  - \"\n",
		"a long version": "entries:\n  a:\n  - name: a\n" + strings.Repeat("    # x\n", 200_000),
		"a long line":    "entries:\n  a:\n  - name: " + strings.Repeat("a", 2<<20) + "\n",
		"a long flow":    "entries: {" + strings.Repeat("a: [],\n", 1<<20) + "}\n",
	} {
		if found, err := helm.Versions(strings.NewReader(index), ""); err == nil {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// TestIndexMemory: of an index of the size of the limit only the wanted chart is kept in memory.
func TestIndexMemory(t *testing.T) {
	entry := func(name string) string {
		return "  " + name + ":\n" + strings.Repeat("  - name: "+name+"\n    version: 1.0.0\n    description: "+strings.Repeat("x", 1000)+"\n", 100)
	}
	other := entry("other")
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, "entries:\n")
		for range 300 {
			_, _ = io.WriteString(writer, other)
		}
		_, _ = io.WriteString(writer, entry("site"))
		writer.Close()
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, err := helm.Versions(reader, "site")
	if err != nil || len(found) != 100 {
		t.Fatalf("%d, %v", len(found), err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 48<<20 {
		t.Errorf("%d MiB were allocated", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}

// TestChoose: the version that a range means, by the rule of Flux.
func TestChoose(t *testing.T) {
	t.Parallel()
	const index = `{"entries":{"a":[{"name":"a","version":"1.0.0"},{"name":"a","version":"1.1.0+b2","created":"2026-02-01T00:00:00Z"},
		{"name":"a","version":"1.1.0+b1","created":"2026-01-01T00:00:00Z"},{"name":"a","version":"v1.0.5"},{"name":"a","version":"9.9"},
		{"name":"a","version":"2.0.0-rc.2"},{"name":"a","version":"2.0.0-rc.10"}]}}`
	all, err := helm.Versions(strings.NewReader(index), "a")
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"": "1.1.0+b2", "*": "1.1.0+b2", "1.0.x": "v1.0.5", "1.1.0+b1": "1.1.0+b1", "~1.0.0": "v1.0.5",
		">=1.0.0-0": "2.0.0-rc.10", "2.x": "", "9.9": "9.9", ">9": "", "1.0.0": "1.0.0"} {
		within, err := helm.ParseRange(version)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := within.Choose(all); got.Version != want || ok != (want != "") {
			t.Errorf("%q: %q, not %q", version, got.Version, want)
		}
	}
	for _, version := range []string{"one", ">>1", strings.Repeat("1", 2000)} {
		if _, err := helm.ParseRange(version); err == nil {
			t.Errorf("%.10q is taken", version)
		}
	}
}

// packed is an archive, with entries as they are written: NAME, CONTENT.
func packed(entries ...string) func() (io.ReadCloser, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for i := 0; i < len(entries); i += 2 {
		h := tar.Header{Name: entries[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(entries[i+1]))}
		if target, link := strings.CutPrefix(entries[i+1], "-> "); link {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		_ = w.WriteHeader(&h)
		_, _ = io.WriteString(w, entries[i+1][:h.Size])
	}
	_, _ = w.Close(), z.Close()
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
}

const about = "apiVersion: v2\nname: site\nversion: 1.0.0 # of a comment\nappVersion: \"1.0\"\n"

// TestChart: what is a chart, and what is not.
func TestChart(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() (io.ReadCloser, error){
		"parent":        packed("site/Chart.yaml", about, "site/../../x", "x"),
		"absolute":      packed("/site/Chart.yaml", about),
		"backslash":     packed("site/Chart.yaml", about, `site/a\..\b`, "x"),
		"no directory":  packed("Chart.yaml", about),
		"two of them":   packed("site/Chart.yaml", about, "other/a", "x"),
		"no Chart.yaml": packed("site/values.yaml", "a: b"),
		"a link":        packed("site/Chart.yaml", "-> /etc/passwd"),
		"a list":        packed("site/Chart.yaml", "- a"),
		"no version":    packed("site/Chart.yaml", "apiVersion: v2\nname: site\n"),
		"no apiVersion": packed("site/Chart.yaml", "name: site\nversion: 1.0.0\n"),
		"a path":        packed("site/Chart.yaml", strings.Replace(about, "site", "../site", 1)),
		"large":         packed("site/Chart.yaml", about, "site/a", strings.Repeat("x", 6<<20)),
		"bomb": packed(append([]string{"site/Chart.yaml", about}, strings.Split(strings.Repeat("site/a\x00"+strings.Repeat("x", 5<<20)+"\x00", 21),
			"\x00")[:42]...)...),
		"no gzip": func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("<html>")), nil },
		"cut": func() (io.ReadCloser, error) {
			whole, _ := packed("site/Chart.yaml", about, "site/a", strings.Repeat("x", 1000))()
			data, _ := io.ReadAll(whole)
			return io.NopCloser(bytes.NewReader(data[:len(data)-20])), nil
		},
	} {
		if c, err := helm.Open(open, ""); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
	c, err := helm.Open(packed("./site/Chart.yaml", about, "site/requirements.yaml", "dependencies: [{name: db}, {name: web}]",
		"site/charts/db-1.0.0.tgz", "x", "site/link", "-> a"), "")
	if err != nil || c.Name != "site" || c.Version != "1.0.0" || c.Missing() != "web" {
		t.Fatalf("%+v, %v", c, err)
	}
}

// TestWrite: a chart of a tree is packed without what its rules leave out, under another version and
// with other values; all other bytes stay, and so does the result.
func TestWrite(t *testing.T) {
	t.Parallel()
	tree := packed("apps/site/.helmignore", "*.md\n/ci\n", "apps/site/Chart.yaml", about, "apps/site/README.md", "x", "apps/site/ci/a.yaml", "x",
		"apps/site/templates/.hidden", "x", "apps/site/templates/a.yaml", "a", "apps/site/values.yaml", "a: 1", "other/Chart.yaml", about)
	c, err := helm.Open(tree, "apps/site")
	if err != nil {
		t.Fatal(err)
	}
	values, err := helm.Merge([]byte("a: {b: 1, c: [1, 2], m: 12345678901234567890}\n"), []byte("a: {c: [3], d: null}\ne: x"), nil)
	if err != nil || string(values) != "a:\n  b: 1\n  c:\n  - 3\n  d: null\n  m: 12345678901234567890\ne: x\n" {
		t.Fatalf("%q, %v", values, err)
	}
	var one, two bytes.Buffer
	d, err := c.Write(t.Context(), &one, "1.0.0+1", values)
	if err != nil || d.Size != int64(one.Len()) {
		t.Fatalf("%+v, %v", d, err)
	}
	got := ""
	for f, err := range archive.Files(bytes.NewReader(one.Bytes())) {
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(f)
		got += f.Path + "=" + string(data) + ";"
	}
	if want := "site/Chart.yaml=" + strings.Replace(about, "1.0.0 # of a comment", "1.0.0+1", 1) + ";site/.helmignore=*.md\n/ci\n;" +
		"site/templates/a.yaml=a;site/values.yaml=" + string(values) + ";"; got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	if _, err := c.Write(t.Context(), &two, "1.0.0+1", values); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := helm.Merge([]byte("- a")); err == nil {
		t.Error("a list is taken for values")
	}
}

// FuzzIndex: no index makes the reader panic, and what it finds has been asked for.
func FuzzIndex(f *testing.F) {
	f.Add("entries:\n  site:\n  - name: site\n    version: 1.0.0\n", "site")
	f.Add(`{"entries":{"a":[{"name":"a","version":"1.0.0"}]}}`, "a")
	f.Add("entries: {a: [b]}", "")
	f.Add("entries:\n  a: &x\n  - *x\n", "a")
	f.Fuzz(func(t *testing.T, index, chart string) {
		found, err := helm.Versions(strings.NewReader(index), chart)
		for _, v := range found {
			if err == nil && (v.Name == "" || v.Version == "") {
				t.Errorf("%+v", v)
			}
		}
	})
}

// FuzzChart: no Chart.yaml makes the reader panic, and a chart that is taken can be packed again.
func FuzzChart(f *testing.F) {
	f.Add(about, "")
	f.Add("apiVersion: v2\nversion: 1.0.0\nname: {a: b}", "!x\n")
	f.Add("{apiVersion: v2, version: 1.0.0, name: a}", "**")
	f.Fuzz(func(t *testing.T, text, rules string) {
		c, err := helm.Open(packed("a/Chart.yaml", text, "a/.helmignore", rules), "a")
		if err != nil {
			return
		}
		if _, err := c.Write(t.Context(), io.Discard, c.Version, nil); err != nil {
			t.Error(err)
		}
	})
}
