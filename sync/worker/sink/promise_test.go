package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPromises: a file is in step in presence, type, mode, name and content, or the check finds it
// and a write mends it.
func TestPromises(t *testing.T) {
	t.Parallel()
	content := tree{"a.json": "A", "dir/b.json": "B", "run.sh": "#!", "caf\xe9.txt": "latin", "d\xff/\"c": "C"}
	for what, change := range map[string]func(name string) error{
		"gone":            os.Remove,
		"another content": func(name string) error { return os.WriteFile(name, []byte("x"), 0o644) },
		"more content":    func(name string) error { return os.WriteFile(name, []byte("many more bytes"), 0o644) },
		"the other mode":  func(name string) error { return chmodOther(name) },
		"a symbolic link": func(name string) error {
			return errors.Join(os.Rename(name, name+"x"), os.Symlink("a.jsonx", name), os.Remove(name+"x"))
		},
		"a directory":      func(name string) error { return errors.Join(os.Remove(name), os.Mkdir(name, 0o755)) },
		"a link to itself": func(name string) error { return errors.Join(os.Remove(name), os.Symlink(filepath.Base(name), name)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			target := permit(t)
			mustPut(t, target, "c1", content)
			for name := range content {
				if _, _, err := Check(target, owner); err != nil {
					t.Fatalf("before: %v", err)
				}
				if err := change(filepath.Join(target.String(), name)); err != nil {
					t.Fatal(err)
				}
				if _, _, err := Check(target, owner); err == nil && what != "another content" { // whose time may be the same
					t.Errorf("%q: not found", name)
				}
				mustPut(t, target, "c1", content)
				check(t, target, content)
				modes(t, target, content)
			}
		})
	}
}

func chmodOther(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return os.Chmod(name, info.Mode().Perm()^0o111)
}

func modes(t *testing.T, target Target, content tree) {
	t.Helper()
	for name := range content {
		info, err := os.Lstat(filepath.Join(target.String(), name))
		if err != nil || (info.Mode()&0o100 != 0) != strings.HasSuffix(name, ".sh") {
			t.Errorf("%q: mode %v, %v", name, info.Mode(), err)
		}
	}
}

// TestModeOfACommit: the executable bit of a commit that changes nothing else reaches the
// directory.
func TestModeOfACommit(t *testing.T) {
	t.Parallel()
	target := permit(t)
	for _, exec := range []bool{false, true, false} {
		d, err := Open(t.Context(), target, owner)
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Plan("c", "", []File{{Path: "run", Hash: hash("#!"), Size: 2, Exec: exec}})
		if err == nil {
			err = d.Write(t.Context(), p, tree{"run": "#!"}.read, func(File) {})
		}
		info, failed := os.Stat(filepath.Join(target.String(), "run"))
		if err := errors.Join(err, failed, d.Close()); err != nil || info.Mode().Perm() != map[bool]fs.FileMode{true: 0o755, false: 0o644}[exec] {
			t.Errorf("exec %v: %v %v", exec, info.Mode(), err)
		}
	}
}

// TestAnyName: names that are no UTF-8 are written, changed and deleted as others, and those of
// other writers stay.
func TestAnyName(t *testing.T) {
	t.Parallel()
	target := permit(t)
	mustPut(t, target, "c1", tree{"caf\xe9.txt": "1", "\xff/x": "1", "\"q\"": "1", "gone\xe9": "1"})
	if err := os.WriteFile(filepath.Join(target.String(), "\xff/theirs\xe9"), []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustPut(t, target, "c2", tree{"caf\xe9.txt": "2", "\"q\"": "2"})
	check(t, target, tree{"caf\xe9.txt": "2", "\"q\"": "2", "\xff/theirs\xe9": "theirs"})
	root, err := os.OpenRoot(target.String())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m, err := readManifest(root)
	if err == nil {
		err = m.load()
	}
	if err != nil || !maps.Equal(hashes(m), map[string]string{"caf\xe9.txt": hash("2"), "\"q\"": hash("2")}) {
		t.Errorf("manifest %q, %v", hashes(m), err)
	}
}

// hashes are those of the files of a manifest.
func hashes(m *manifest) map[string]string {
	out := map[string]string{}
	for name, e := range m.files {
		out[name] = e.hash
	}
	return out
}

// TestEarlierManifest: a directory of an earlier version is taken over as it is, but what its
// manifest does not say is compared with the disk once.
func TestEarlierManifest(t *testing.T) {
	t.Parallel()
	content := tree{"a.json": "A", "run.sh": "#!", "caf\xe9": "latin"}
	for what, exec := range map[string]string{"modes": `{"run.sh": true}`, "no modes": `null`} {
		target := permit(t)
		mustPut(t, target, "c1", content)
		written := time.Now().Add(-time.Hour)
		for name := range content {
			if err := os.Chtimes(filepath.Join(target.String(), name), time.Time{}, written); err != nil {
				t.Fatal(err)
			}
		}
		quoted := `"\"caf\\xe9\""`
		earlier := fmt.Sprintf(`{"version": 1, "repository": %q, "commit": "c1",
			"files": {"a.json": %q, "run.sh": %q, %s: %q}, "sizes": {"a.json": 1, "run.sh": 2, %s: 5},
			"times": {"a.json": %d, "run.sh": %d, %s: %d}, "exec": %s, "uids": {"a.json": "a"}}`,
			owner, hash("A"), hash("#!"), quoted, hash("latin"), quoted,
			written.UnixNano(), written.UnixNano(), quoted, written.UnixNano(), exec)
		if err := os.WriteFile(filepath.Join(target.String(), manifestPath), []byte(earlier), 0o644); err != nil {
			t.Fatal(err)
		}
		before := inodes(t, target)
		_, _, err := Check(target, owner)
		if (err == nil) != (what == "modes") {
			t.Errorf("%s: %v", what, err)
		}
		if what == "no modes" {
			if err := os.Chmod(filepath.Join(target.String(), "run.sh"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		again := mustPut(t, target, "c1", content)
		if (len(again) == 0) != (what == "modes") || inodes(t, target)["a.json"] != before["a.json"] {
			t.Errorf("%s: written %q", what, again)
		}
		modes(t, target, content)
		if _, _, err := Check(target, owner); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		root, err := os.OpenRoot(target.String())
		if err != nil {
			t.Fatal(err)
		}
		m, err := readManifest(root)
		if root.Close(); err == nil {
			err = m.load()
		}
		if err != nil || m.Version != manifestVersion || m.files["a.json"].at.CTime == 0 {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
}
