package git

import (
	"encoding/binary"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

// No damage of a mirror ends in an error: it is noticed, and the mirror is made
// anew.
func TestDamagedMirrorHeals(t *testing.T) {
	t.Parallel()
	overwrite := func(pattern string, f func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for _, file := range gittest.Glob(t, dir, pattern) {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				os.Chmod(file, 0o600)
				if err := os.WriteFile(file, f(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	remove := func(pattern string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for _, file := range gittest.Glob(t, dir, pattern) {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	half := func(b []byte) []byte { return b[:len(b)/2] }
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[(at+len(b))%len(b)] ^= 0xff; return b }
	}
	objects := func(idx []byte) int { return int(binary.BigEndian.Uint32(idx[8+4*255:])) }
	cases := map[string]func(t *testing.T, dir string){
		"pack cut off":   overwrite("objects/pack/*.pack", half),
		"pack empty":     overwrite("objects/pack/*.pack", func([]byte) []byte { return nil }),
		"pack flipped":   overwrite("objects/pack/*.pack", flip(300)),
		"pack of zeros":  overwrite("objects/pack/*.pack", func(b []byte) []byte { clear(b[12 : len(b)-20]); return b }),
		"index cut off":  overwrite("objects/pack/*.idx", half),
		"index: counts":  overwrite("objects/pack/*.idx", flip(8+4*100)),
		"index: names":   overwrite("objects/pack/*.idx", func(b []byte) []byte { clear(b[8+1024 : 8+1024+20*objects(b)]); return b }),
		"index: offsets": overwrite("objects/pack/*.idx", func(b []byte) []byte { clear(b[len(b)-40-4*objects(b) : len(b)-40]); return b }),
		"index: other offsets": overwrite("objects/pack/*.idx",
			func(b []byte) []byte { b[len(b)-41]++; b[len(b)-45]++; b[len(b)-49]++; return b }),
		"no packs": remove("objects/pack/*"),
		"largest pack gone": func(t *testing.T, dir string) {
			largest, size := "", int64(0)
			for _, file := range gittest.Glob(t, dir, "objects/pack/*.pack") {
				if info, err := os.Stat(file); err == nil && info.Size() > size {
					largest, size = strings.TrimSuffix(filepath.Base(file), ".pack"), info.Size()
				}
			}
			remove("objects/pack/"+largest+".*")(t, dir)
		},
		"no pack":         remove("objects/pack/*.pack"),
		"no index":        remove("objects/pack/*.idx"),
		"no objects":      remove("objects"),
		"no note":         remove(noteFile),
		"note of another": overwrite(noteFile, func([]byte) []byte { return []byte(`{"format":1,"url":"https://elsewhere/x"}`) }),
		"note from the future": overwrite(noteFile,
			func(b []byte) []byte { return []byte(strings.Replace(string(b), `"format": 1`, `"format": 99`, 1)) }),
		"refs: nonsense":    overwrite("packed-refs", func([]byte) []byte { return []byte("nonsense\n") }),
		"refs: unknown":     overwrite("packed-refs", func([]byte) []byte { return []byte(strings.Repeat("ab", 20) + " refs/heads/main\n") }),
		"shallow: nonsense": overwrite(shallowFile, func([]byte) []byte { return []byte("nonsense\n") }),
		"nothing":           func(t *testing.T, dir string) { remove("*")(t, dir); os.Remove(dir) },
	}
	s, o, m, r, ref, files := site(t, Options{})
	dir := mirrorDir(t, m, r)
	n := 0
	for name, harm := range cases {
		t.Run(name, func(t *testing.T) {
			harm(t, dir)
			again, err := Open(m.dir, Options{}) // as after a restart
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			// What a job does: fetch what it knows, and read it all.
			work := func(ref Ref) (Stats, error) {
				st, err := again.Fetch(t.Context(), r, ref)
				if err != nil {
					return st, err
				}
				tree, err := again.Tree(t.Context(), r, ref.Hash, "")
				if err != nil {
					return st, err
				}
				for _, f := range tree.Files {
					if _, err := again.Blob(t.Context(), r, f.Hash, 0); err != nil {
						return st, err
					}
				}
				return st, nil
			}
			if _, err := work(ref); err != nil {
				t.Fatal(err)
			}
			if got := content(t, again, r, ref.Hash, ""); !maps.Equal(got, files) {
				t.Fatal("content differs")
			}
			n++
			files["d0/x0.json"] = gittest.Dashboard("healed", n, 10)
			next := o.Commit(name, files)
			if ref, err = again.Resolve(t.Context(), r, gitref.Branch("")); err != nil || ref.Hash != next {
				t.Fatal(ref, err)
			}
			if st, err := work(ref); err != nil {
				t.Fatalf("%+v %v", st, err)
			}
			fsck(t, again, r)
			if left := gittest.Glob(t, m.dir, "tmp_*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	_ = s
}

// spoil damages a mirror.
func spoil(m *mirror) {
	os.Remove(filepath.Join(m.dir, noteFile))
	m.changed()
}

// While the network is away, a damaged mirror stays as it is, and is made anew once.
func TestDamagedMirrorWithoutNetwork(t *testing.T) {
	t.Parallel()
	s, _, m, r, ref, files := site(t, Options{})
	spoil(m.mirror(mustAddress(t, r.URL)))
	s.Fails(http.StatusServiceUnavailable)
	_, err := m.Fetch(t.Context(), r, ref)
	gittest.ErrorIs(t, err, Unreachable)
	s.Fails(0)
	st, err := m.Fetch(t.Context(), r, ref)
	if err != nil || !st.Rebuilt {
		t.Fatalf("%+v, %v", st, err)
	}
	if st, err = m.Fetch(t.Context(), r, ref); err != nil || st.Requests != 0 {
		t.Fatalf("rebuilt twice: %+v, %v", st, err)
	}
	if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
}

// TestDamagedMirrorStaysReadable: what is sound of a damaged mirror can be read until it is
// made anew, which the next fetch does after a restart too.
func TestDamagedMirrorStaysReadable(t *testing.T) {
	t.Parallel()
	s, _, m, r, ref, files := site(t, Options{})
	tree := gittest.Must[Tree](t)(m.Tree(t.Context(), r, ref.Hash, ""))
	dir := mirrorDir(t, m, r)
	file := gittest.Glob(t, dir, "objects/pack/*.pack")[0]
	data := gittest.Must[[]byte](t)(os.ReadFile(file))
	data[len(data)-30] ^= 0xff // in the last object
	os.Chmod(file, 0o600)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m.mirror(mustAddress(t, r.URL)).changed()
	read := func(m *Mirrors) (sound, damaged int) {
		t.Helper()
		for _, f := range tree.Files {
			switch data, err := m.Blob(t.Context(), r, f.Hash, 0); {
			case err == nil && string(data) == files[f.Path]:
				sound++
			case KindOf(err) == Corrupt:
				damaged++
			default:
				t.Errorf("%s: %v", f.Path, err)
			}
		}
		return sound, damaged
	}
	s.Fails(http.StatusServiceUnavailable)
	if sound, damaged := read(m); sound == 0 || damaged == 0 {
		t.Fatalf("%d files can be read, %d are damaged", sound, damaged)
	}
	m.Close()
	again := gittest.Must[*Mirrors](t)(Open(m.dir, Options{}))
	defer again.Close()
	if sound, _ := read(again); sound == 0 || !again.mirror(mustAddress(t, r.URL)).isDamaged() {
		t.Errorf("after a restart %d files can be read, and the mirror is not marked", sound)
	}
	s.Fails(0)
	if st, err := again.Fetch(t.Context(), r, ref); err != nil || !st.Rebuilt {
		t.Fatalf("%+v, %v", st, err)
	}
	if _, damaged := read(again); damaged > 0 || again.mirror(mustAddress(t, r.URL)).isDamaged() {
		t.Errorf("made anew, %d files are damaged", damaged)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	_, _, m, r, ref, files := site(t, Options{})
	dir := mirrorDir(t, m, r)
	m.Close()
	stale := []string{
		filepath.Join(m.dir, buildPrefix+"1", "mirror", "objects", "pack", "x"), filepath.Join(m.dir, trashPrefix+"2", "x"),
		filepath.Join(m.dir, pack.TempPrefix+"3"),
		filepath.Join(dir, "objects/pack", "tmp_pack_4"), filepath.Join(dir, "objects/pack", pack.TempPrefix+"5"),
		filepath.Join(dir, "shallow.lock"),
		filepath.Join(dir, "packed-refs.lock"), filepath.Join(dir, "objects/pack/pack-"+strings.Repeat("0", 40)+".pack"),
		filepath.Join(dir, pack.TempPrefix+"6"),
	}
	for _, f := range stale {
		if err := os.MkdirAll(filepath.Dir(f), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(m.dir, "not-ours.txt")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(m.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, f := range stale {
		if _, err := os.Stat(f); err == nil {
			t.Errorf("%s is still there", f)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("a file of somebody else was removed")
	}
	if got := content(t, again, r, ref.Hash, ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
	fsck(t, again, r)
}

// A process that is killed within a fetch leaves what the next start removes.
func TestKilledFetch(t *testing.T) {
	t.Parallel()
	if url := os.Getenv("LIMPET_TEST_FETCH"); url != "" { // the child
		m, err := Open(os.Getenv("LIMPET_TEST_DIR"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		syncRef(t, m, Remote{URL: url}, "")
		return
	}
	s, o, m, r, ref, files := site(t, Options{})
	files["big.json"] = gittest.Dashboard("big", 1, 3000)
	o.Commit("two", files)
	m.Close()
	for _, dir := range []string{m.dir, filepath.Join(t.TempDir(), "none")} { // a difference, a clone
		var answer func([]byte) []byte
		arrived, release := make(chan struct{}), make(chan struct{})
		record := s.Recorded(&answer)
		s.During(func(w http.ResponseWriter, r *http.Request) {
			answer = func(b []byte) []byte {
				w.Write(b[:len(b)-1000])
				http.NewResponseController(w).Flush()
				close(arrived)
				<-release
				return nil
			}
			record(w, r)
		})
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledFetch$")
		cmd.Env = append(os.Environ(), "LIMPET_TEST_FETCH="+r.URL, "LIMPET_TEST_DIR="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-arrived
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		close(release)
		s.During(nil)
		again, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if left := append(gittest.Glob(t, dir, "tmp_*"), gittest.Glob(t, dir, "*/objects/pack/tmp_*")...); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		now, st := syncRef(t, again, r, "")
		if st.Full != (dir != m.dir) || st.Rebuilt {
			t.Errorf("%+v", st)
		}
		if got := content(t, again, r, now.Hash, ""); !maps.Equal(got, files) {
			t.Fatal("content differs")
		}
		fsck(t, again, r)
	}
	_ = ref
}

// A pack that builds on objects which the open mirror cannot read any more is no
// fault of the server: the mirror is made anew.
func TestThinPackOnDamagedMirror(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(file string) error{
		"empty":   func(file string) error { return os.Truncate(file, 0) },
		"cut off": func(file string) error { return os.Truncate(file, 200) },
	} {
		t.Run(name, func(t *testing.T) {
			_, o, m, r, _, files := site(t, Options{})
			files["large.json"] = gittest.Dashboard("large", 1, 60)
			o.Commit("large", files)
			syncRef(t, m, r, "")
			old := gittest.Glob(t, mirrorDir(t, m, r), "objects/pack/*.pack")
			files["other.json"] = gittest.Dashboard("other", 1, 1)
			o.Commit("its commit is in a pack that stays sound", files)
			open, _ := syncRef(t, m, r, "")
			if _, err := m.Commit(t.Context(), r, open.Hash); err != nil { // opens the mirror
				t.Fatal(err)
			}
			for _, file := range old {
				os.Chmod(file, 0o600)
				if err := harm(file); err != nil {
					t.Fatal(err)
				}
			}
			files["large.json"] = gittest.Dashboard("large", 2, 60)
			next := o.Commit("a small change", files)
			ref, st := syncRef(t, m, r, "")
			if ref.Hash != next || !st.Rebuilt {
				t.Errorf("%s instead of %s, %+v", ref.Hash, next, st)
			}
			if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
				t.Error("content differs")
			}
			fsck(t, m, r)
		})
	}
}

// What is deleted from under a running agent is made again.
func TestMirrorDeletedWhileOpen(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(t *testing.T, m *Mirrors, r Remote) string{
		"its objects": func(t *testing.T, m *Mirrors, r Remote) string { return filepath.Join(mirrorDir(t, m, r), "objects") },
		"the mirror":  mirrorDirOf,
		"all mirrors": func(_ *testing.T, m *Mirrors, _ Remote) string { return m.dir },
	} {
		t.Run(name, func(t *testing.T) {
			_, o, m, r, ref, files := site(t, Options{})
			if _, err := m.Commit(t.Context(), r, ref.Hash); err != nil { // opens the mirror
				t.Fatal(err)
			}
			if err := os.RemoveAll(gone(t, m, r)); err != nil {
				t.Fatal(err)
			}
			files["new.json"] = gittest.Dashboard("new", 1, 1)
			o.Commit("new", files)
			ref, st := syncRef(t, m, r, "")
			if !st.Rebuilt && !st.Full {
				t.Errorf("%+v", st)
			}
			if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
				t.Error("content differs")
			}
			fsck(t, m, r)
		})
	}
}

func mirrorDirOf(t *testing.T, m *Mirrors, r Remote) string { return mirrorDir(t, m, r) }
