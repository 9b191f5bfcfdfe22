package target

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/state"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// blobs are files by their hashes, which are their paths here.
type blobs struct {
	files map[string]string
	read  chan string
}

func (b blobs) Read(_ context.Context, hash string) ([]byte, error) {
	b.read <- hash
	return []byte(b.files[hash]), nil
}

func (blobs) Recycle([]byte) {}

// ignore is a Recorder.
type ignore struct{}

func (ignore) Record(context.Context, resources.Result) {}
func (ignore) TooManyErrors() error                     { return nil }

// TestPrepared: an object is the same, to the byte, whether its file was judged when it came or when
// it is written.
func TestPrepared(t *testing.T) {
	t.Parallel()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	server, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := kube.Connect(t.Context(), kube.Config{
		Server: "http://embedded", Transport: server.Transport(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	long := strings.Repeat(`{"type":"text","options":{"content":"a b"}},`, 200) + `{"id":1e2}`
	classic := `{"uid":%q,"id":7,"title":"T","tags":[],"schemaVersion":39,"panels":[` + strings.Replace(long, "1e2", "12", 1) + `]}`
	object := `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{%s},"spec":` + fmt.Sprintf(classic, "x") + `%s}`
	files := map[string]string{
		"a.json":       fmt.Sprintf(classic, "a"),
		"b.json":       "\ufeff " + strings.ReplaceAll(fmt.Sprintf(classic, "b"), ",", ", \n"),
		"d/c.json":     fmt.Sprintf(object, `"name":"c","labels":{"l":"1"}`, ""),
		"d/more.json":  fmt.Sprintf(object, `"name":"more"`, `,"secure":{}`),
		"drawn.json":   fmt.Sprintf(object, `"generateName":"g-"`, ""),
		"power.json":   strings.Replace(fmt.Sprintf(classic, "power"), "12}", "1e2}", 1),
		"small.json":   `{"uid":"small","title":"T","tags":[],"schemaVersion":39,"panels":[]}`,
		"yaml.yaml":    fmt.Sprintf(object, `"name":"yaml"`, ""),
		"bad.json":     `{`,
		"note.txt":     "n",
		"library.json": `{"apiVersion":"dashboard.grafana.app/v1","kind":"LibraryPanel","metadata":{"name":"l"},"spec":{}}`,
	}
	kinds, _ := resources.ParseKinds(nil)
	// write applies the files to a namespace and returns what is stored there, from the spec on, and what
	// was read.
	write := func(namespace string, p *Prepared) (stored map[string]string, read []string) {
		t.Helper()
		to, err := Open(t.Context(), Servers{client, client, client}, kinds, namespace, true)
		if err != nil {
			t.Fatal(err)
		}
		var tree resources.Tree
		for _, path := range slices.Sorted(maps.Keys(files)) {
			tree.Files = append(tree.Files, resources.TreeFile{Path: path, Hash: path})
		}
		plan := resources.Full(resources.Target{Repository: "r", Kinds: to.Kinds}, tree, nil, nil)
		from := blobs{files, make(chan string, len(files))}
		run := resources.Apply{Server: to, Reader: from, Recorder: ignore{}, Namespace: namespace}
		if p != nil {
			run.Prepared = p
		}
		if _, err := run.Run(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		close(from.read)
		for path := range from.read {
			read = append(read, path)
		}
		slices.Sort(read)
		page, err := store.Objects(t.Context(), state.ObjectQuery{Resource: "dashboard.grafana.app/dashboards", Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		stored = map[string]string{}
		for _, o := range page.Items {
			_, spec, _ := bytes.Cut(o.Data, []byte(specMember))
			stored[o.Key.Name] = string(spec)
		}
		return stored, read
	}
	prepare := func(namespace string) *Prepared {
		p := Prepare(store, resources.File{Repository: "r", Namespace: namespace, Kinds: kinds})
		for path, content := range files {
			p.Receive(path, path, false, []byte(content))
		}
		p.Close()
		return p
	}
	want, all := write("read", nil)
	if len(want) != 8 {
		t.Fatalf("stored are %q", slices.Sorted(maps.Keys(want)))
	}
	p := prepare("prepared")
	kept := slices.Sorted(maps.Keys(p.kept))
	got, read := write("prepared", p)
	if !maps.Equal(got, want) {
		t.Errorf("stored are %q, want %q", got, want)
	}
	if once := slices.Sorted(slices.Values(slices.Concat(kept, read))); !slices.Equal(once, all) || len(p.kept) > 0 ||
		!slices.Equal(kept, []string{"a.json", "b.json", "d/c.json", "drawn.json", "yaml.yaml"}) {
		t.Errorf("prepared %q, read %q, left %d", kept, read, len(p.kept))
	}

	p = Prepare(store, resources.File{Repository: "r", Namespace: "full", Kinds: kinds})
	p.left = 1
	p.Receive("a.json", "a.json", false, []byte(files["a.json"]))
	p.Receive("d/c.json", "d/c.json", false, []byte(files["d/c.json"]))
	p.Close()
	if len(p.kept) != 0 {
		t.Errorf("without a budget %d are kept", len(p.kept))
	}
	const large = 1 << 20
	for what, file := range map[string]string{
		"metadata":  fmt.Sprintf(object, `"name":"a","annotations":{"x":"`+strings.Repeat("a", large)+`"}`, ""),
		"a title":   strings.Replace(files["a.json"], `"T"`, `"`+strings.Repeat("a", large)+`"`, 1),
		"a version": strings.Replace(fmt.Sprintf(object, `"name":"a"`, ""), "/v1", "/v"+strings.Repeat("1", large), 1),
	} {
		p := Prepare(store, resources.File{Repository: "r", Namespace: "large", Kinds: kinds})
		for i := range 2 * maxPrepared / large {
			name := fmt.Sprint(i, ".json")
			p.Receive(name, name, false, []byte(file))
		}
		if p.Close(); len(p.kept) > maxPrepared/large {
			t.Errorf("%d objects with %s of %d bytes are kept", len(p.kept), what, large)
		}
	}
	p = prepare("other")
	if _, is := p.Take("a.json", "another"); is {
		t.Error("a file of another commit is taken")
	}
}

const specMember = `,"spec":`
