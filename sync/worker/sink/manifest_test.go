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
	"testing"

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
