package pack

import (
	"bytes"
	"maps"
	"strconv"
	"strings"
	"testing"

	"limpet/sync/testenv/gittest"
)

// received are the files that were handed over.
type received map[string]string

func (r received) Receive(path, hash string, exec bool, content []byte) {
	if exec {
		path += "*"
	}
	r[path] = hash + " " + string(content)
}

// TestArrivals: each file below the directory is handed over once, with the content of its name,
// whether the pack groups its objects or not, and none of another commit or another name.
func TestArrivals(t *testing.T) {
	t.Parallel()
	o := gittest.NewOrigin(t, t.TempDir(), "x.git")
	files := map[string]string{"a.json": `{"a":1}`, "d/b.json": `{"b":1}`, "d/e/c.json": `{"c":1}`, "dd/x.json": `{"x":1}`}
	for i := range 6 {
		files["d/many/"+strings.Repeat("x", i)+".json"] = gittest.Dashboard("m", i, 20)
	}
	head := o.Commit("one", files)
	for _, args := range [][]string{{"--window=0"}, {"--delta-base-offset", "--window=50"}, {}} {
		in := gittest.Git(t, o.Bare, nil, "rev-list", "--objects", "--all", "--no-object-names") + "\n"
		data := gittest.Git(t, o.Bare, []byte(in), append([]string{"pack-objects", "-q", "--stdout"}, args...)...)
		for dir, want := range map[string]int{"": 10, "d": 8, "d/": 8, "d/e": 1, "none": 0, "a.json": 0} {
			got := received{}
			id, _ := ParseID(head)
			s, err := Spool(emptyMirror(t), bytes.NewReader([]byte(data)), DefaultLimits, nil, &Arrivals{Commit: id, Dir: dir, To: got})
			if err == nil {
				err = s.Resolve(t.Context(), nil, DefaultLimits)
			}
			s.Discard()
			if err != nil || len(got) != want {
				t.Errorf("%v, %q: %d files, %v", args, dir, len(got), err)
			}
			for path, was := range maps.All(got) {
				content := files[strings.TrimPrefix(strings.Trim(dir, "/")+"/"+path, "/")]
				if was != IDOf(BlobKind, []byte(content)).String()+" "+content {
					t.Errorf("%v, %q: %s is %.60s", args, dir, path, was)
				}
			}
		}
	}
	deep, wide := &Arrivals{dirs: map[ID]string{}, files: map[ID]arriving{}}, []TreeEntry(nil)
	for i := range 20_000 {
		name := strconv.Itoa(i)
		wide = append(wide, TreeEntry{ModeFile, name, IDOf(BlobKind, []byte(name))})
	}
	deep.open(strings.Repeat(strings.Repeat("d", 250)+"/", 29)+"d", TreeText(wide))
	held := 0
	for _, f := range deep.files {
		held += len(f.path)
	}
	if held == 0 || held > 64<<20 {
		t.Errorf("%d bytes of paths are held", held)
	}
	other := received{}
	a := &Arrivals{Commit: ID{1}, To: other}
	evil := TreeText([]TreeEntry{{ModeFile, "..", ID{2}}, {ModeFile, "a/b", ID{3}}, {ModeTree, "..", ID{4}}, {ModeLink, "l", ID{5}}})
	a.add(CommitKind, ID{1}, []byte("tree "+IDOf(TreeKind, evil).String()+"\n\nm"))
	a.add(TreeKind, IDOf(TreeKind, evil), evil)
	for i := range byte(6) {
		a.add(BlobKind, ID{i}, nil)
	}
	if len(other) > 0 || len(a.dirs) > 0 {
		t.Errorf("handed over: %v, %v", other, a.dirs)
	}
}
