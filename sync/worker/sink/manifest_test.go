package sink

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"limpet/sync/testenv/suite"
)

func text(t *testing.T, m *manifest) string {
	t.Helper()
	data, err := io.ReadAll(m.encode())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestManifestChanges: a manifest some files of which were changed, before or after its list was read,
// is on the disk what one with these files is.
func TestManifestChanges(t *testing.T) {
	t.Parallel()
	seed := suite.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 41))
	for range suite.Count(300, 5000) {
		want := map[string]entry{"stays": {hash: "0", uid: "u"}}
		for range rng.IntN(8) {
			want[fmt.Sprintf("f%d \"\xe9\n", rng.IntN(10))] = entry{hash: "h1", size: 2, uid: "v"}
		}
		first := &manifest{header: header{Version: manifestVersion, Count: len(want)}, files: maps.Clone(want)}
		m, err := parseManifest(text(t, first))
		if err != nil {
			t.Fatal(err)
		}
		m.changed = map[string]entry{}
		for i := range rng.IntN(8) {
			name, e := fmt.Sprintf("f%d \"\xe9\n", rng.IntN(10)), entry{}
			if delete(want, name); rng.IntN(2) == 0 {
				e = entry{hash: "h2", size: int64(i), exec: true, uid: fmt.Sprint(i), at: stamp{1, 2, 3}}
				want[name] = e
			}
			m.set(name, e)
		}
		uids := map[string]int{}
		for _, e := range want {
			uids[e.uid]++
		}
		for _, uid := range []string{"u", "v", "1", "3"} {
			if got := m.hasUID(File{Path: "new", UID: uid}); got != (uids[uid] > 0) {
				t.Fatalf("uid %s: %v, of %v", uid, got, want)
			}
		}
		again, err := parseManifest(text(t, m))
		if err != nil || m.Count != len(want) {
			t.Fatal(m.Count, err, want)
		}
		for _, m := range []*manifest{m, again} {
			if err := m.load(); err != nil || !maps.Equal(m.files, want) {
				t.Fatalf("%v, %v, want %v", m.files, err, want)
			}
		}
	}
}

// TestBased: a commit of few files into a large directory writes their lines alone, beside the list
// that it links. Many of them become a whole manifest again.
func TestBased(t *testing.T) {
	t.Parallel()
	target, content := permit(t), tree{}
	for i := range 800 {
		content[fmt.Sprintf("d%d/%d.json", i%7, i)] = "A"
	}
	mustPut(t, target, "a", content)
	content["d1/1.json"] = "B"
	mustPut(t, target, "b", content)
	read := func(name string) (inode, header) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(target.String(), name))
		var h header
		if _, _, failed := unframe(string(data), &h); err != nil || failed != nil {
			t.Fatal(name, err, failed)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(target.String(), name), &st); err != nil {
			t.Fatal(err)
		}
		return inodeOf(&st), h
	}
	base, whole := read(manifestPath)
	for i := range 30 {
		before := maps.Clone(content)
		for j := range 22 {
			content[fmt.Sprintf("d%d/%d.json", (j+22*i)%7, j+22*i)] = fmt.Sprint(i, j)
		}
		delete(content, fmt.Sprintf("d0/%d.json", 777-7*i))
		if !amend(t, target, before, content, "c1") {
			t.Fatal(i, "the whole directory was compared")
		}
		check(t, target, content)
		now, h := read(manifestPath)
		if h.Count != len(content) || h.Based != (h.Version == basedVersion) {
			t.Fatalf("%d: header %+v of %d files", i, h, len(content))
		}
		if !h.Based {
			if i == 0 || h.Version != whole.Version || now.size < base.size/2 {
				t.Fatalf("%d: header %+v, %d bytes", i, h, now.size)
			}
			return
		}
		if under, _ := read(basePath); under.Inode != base.Inode || i == 0 && now.size > base.size/2 {
			t.Fatalf("%d: base %v, it was %v; %d bytes beside it", i, under, base, now.size)
		}
	}
	t.Error("the changes are as many as the files")
}

// TestNoBase: a manifest whose list is gone or cut off is an error.
func TestNoBase(t *testing.T) {
	t.Parallel()
	target, content := permit(t), tree{"a.json": "A", "b.json": "B"}
	mustPut(t, target, "a", content)
	content["a.json"] = "2"
	mustPut(t, target, "b", content)
	before := maps.Clone(content)
	content["a.json"] = "3"
	amend(t, target, before, content, "c1")
	name := filepath.Join(target.String(), basePath)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for end := range len(data) {
		if err := os.WriteFile(name, data[:end], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Check(target, owner); err == nil {
			t.Errorf("nothing is wrong with %q", data[:end])
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), target, owner); err == nil {
		t.Error("a directory without a list of its files is opened")
	}
}

// TestReleaseOrder: what is released loses its manifest before what that refers to. Without its list
// no later Leave could open the directory.
func TestReleaseOrder(t *testing.T) {
	t.Parallel()
	target, content := permit(t), tree{"a.json": "A", "b.json": "B"}
	for i := range 3 {
		before := maps.Clone(content)
		content["a.json"] = fmt.Sprint("A", i)
		if amend(t, target, before, content, fmt.Sprint("c", i)) != (i == 2) {
			t.Fatal(i)
		}
	}
	d, err := Open(t.Context(), target, owner)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	name := filepath.Join(target.String(), manifestPath)
	if err := errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(); err == nil {
		t.Error("it is released with its manifest")
	}
	if _, err := os.Stat(filepath.Join(target.String(), basePath)); err != nil {
		t.Error(err)
	}
}

// TestSpareCutOff: no beginning of the text that describes a spare generation is one.
func TestSpareCutOff(t *testing.T) {
	t.Parallel()
	was := spare{Boot: "b", Shown: 1, Stale: []string{"s"}, Dirs: map[string]stamp{".": {1, 2, 3}, "d\xe9": {4, 5, 6}},
		Seen: map[string]stamp{".": {7, 8, 9}}}
	whole := was.encode()
	for end := range len(whole) {
		if new(spare).decode(whole[:end]) == nil {
			t.Errorf("%q is one", whole[:end])
		}
	}
	var now spare
	if err := now.decode(whole); err != nil || !maps.Equal(now.Dirs, was.Dirs) || !maps.Equal(now.Seen, was.Seen) ||
		now.Boot != "b" || now.Shown != 1 || len(now.Stale) != 1 {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestNoteCutOff: a new manifest that cannot be finished leaves nothing beside the present one, and
// what a killed process leaves there neither stays nor holds up the end of the directory.
func TestNoteCutOff(t *testing.T) {
	t.Parallel()
	target, content := permit(t), tree{"a.json": "A"}
	mustPut(t, target, "c0", content)
	dir := filepath.Join(target.String(), manifestDir)
	present := filepath.Join(target.String(), manifestPath)
	_, err := put(t, target, "c1", content, func(d *Dir) {
		d.step = func(string) {
			if err := errors.Join(os.Remove(present), os.MkdirAll(filepath.Join(present, "x"), 0o755)); err != nil {
				t.Error(err)
			}
		}
	})
	if left, _ := os.ReadDir(dir); err == nil || len(left) != 1 {
		t.Errorf("%v, and in %s are %v", err, manifestDir, left)
	}
	if err := os.RemoveAll(target.String()); err != nil {
		t.Fatal(err)
	}
	mustPut(t, target, "c0", content)
	if err := os.WriteFile(filepath.Join(target.String(), newManifest), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustPut(t, target, "c1", content)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("after the next one there are %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json.OLDER"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Leave(t.Context(), target, owner, false); err != nil {
		t.Error(err)
	}
	check(t, target, content)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", manifestDir, err)
	}
}

// TestPipes: a pipe in the place of a file that limpet keeps is an error, or is not there, and is not
// waited for.
func TestPipes(t *testing.T) {
	t.Parallel()
	for _, at := range []string{manifestPath, sparePath, execPath} {
		target, content := permit(t), tree{"a.json": "A"}
		for i := range 2 {
			content["a.json"] = fmt.Sprint("A", i)
			mustPut(t, target, fmt.Sprint("c", i), content)
		}
		name := filepath.Join(target.String(), at)
		if at == sparePath {
			name = filepath.Join(generation(t, target), at)
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		content["a.json"] = "A9"
		_, marker := target.execMarker()
		if _, err := put(t, target, "c9", content, nil); (err != nil) != (at == manifestPath) || (marker != nil) != (at == execPath) {
			t.Errorf("%s: %v, %v", at, err, marker)
		}
	}
}
