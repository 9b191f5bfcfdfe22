package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"limpet/sync/testenv/suite"
)

// generation returns the directory that is not shown, "" for none.
func generation(t testing.TB, target Target) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(target.String()), ".*.limpet-*"))
	if err != nil || len(found) > 1 {
		t.Fatalf("generations %q, %v", found, err)
	}
	return strings.Join(found, "")
}

func changed(t testing.TB, name string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(name, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ctim.Nano()
}

// TestTurns: from the second change on a write exchanges the two generations, and does not touch the
// files that it does not change. No content stays that is not shown.
func TestTurns(t *testing.T) {
	t.Parallel()
	target := permit(t)
	content := tree{"a.json": "A", "d/b.json": "B", "d/e/c.json": "C", "gone/x": "X"}
	mustPut(t, target, "c0", content)
	if g := generation(t, target); g != "" {
		t.Errorf("after the first write there is %s", g)
	}
	content["a.json"] = "A1"
	mustPut(t, target, "c1", content)
	hidden := generation(t, target)
	before := inodes(t, target)["."]
	since := changed(t, filepath.Join(target.String(), "d/b.json"))
	for i, change := range []func(){
		func() { content["a.json"] = "A2" },
		func() { content["d/e/c.json"], content["new/y"] = "C3", "Y" },
		func() { delete(content, "gone/x"); content["gone"] = "a file" },
		func() { delete(content, "gone"); content["gone/z"] = "Z" },
		func() { delete(content, "new/y"); delete(content, "d/e/c.json") },
	} {
		change()
		mustPut(t, target, fmt.Sprint("c", 2+i), content)
		check(t, target, content)
		if got := generation(t, target); got != hidden {
			t.Fatalf("change %d: another generation %s, it was %s", i, got, hidden)
		}
		if now := inodes(t, target)["."]; (now == before) != (i%2 == 1) {
			t.Errorf("change %d: inode %d, before %d", i, now, before)
		}
		if _, _, err := Check(target, owner); err != nil {
			t.Errorf("change %d: %v", i, err)
		}
		for name, text := range on(t, hidden) {
			if content[name] != text {
				t.Errorf("change %d: hidden %s holds %q", i, name, text)
			}
		}
	}
	if now := changed(t, filepath.Join(target.String(), "d/b.json")); now != since {
		t.Error("a file that stays was touched")
	}
	if n, err := Leave(t.Context(), target, owner, true); n != 3 || err != nil || generation(t, target) != "" {
		t.Errorf("left %d, %v, beside %q", n, err, generation(t, target))
	}
}

// hand is what another program does in a directory: it changes the disk, and what is to be there
// after the next write.
type hand struct {
	what string
	do   func(dir string, want tree) error
}

// hands are edits of a directory with a.json and d/b.json. Those of what limpet has written are taken
// back, files of others stay.
var hands = []hand{
	{"nothing", func(string, tree) error { return nil }},
	{"edit in place", func(dir string, _ tree) error {
		f, err := os.OpenFile(filepath.Join(dir, "d/b.json"), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("an edit")
		return errors.Join(err, f.Close())
	}},
	{"edit of the same size and time", func(dir string, _ tree) error {
		name := filepath.Join(dir, "d/b.json")
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(name, []byte("X"), 0o644), os.Chtimes(name, time.Time{}, info.ModTime()))
	}},
	{"another file in its place", func(dir string, _ tree) error {
		name := filepath.Join(dir, "d/b.json")
		return errors.Join(os.WriteFile(name+"~", []byte("X"), 0o644), os.Rename(name+"~", name))
	}},
	{"the same content in another file", func(dir string, _ tree) error {
		name := filepath.Join(dir, "d/b.json")
		return errors.Join(os.WriteFile(name+"~", []byte("B"), 0o644), os.Rename(name+"~", name))
	}},
	{"delete", func(dir string, _ tree) error { return os.Remove(filepath.Join(dir, "d/b.json")) }},
	{"delete a directory", func(dir string, _ tree) error { return os.RemoveAll(filepath.Join(dir, "d")) }},
	{"chmod", func(dir string, _ tree) error { return chmodOther(filepath.Join(dir, "d/b.json")) }},
	{"chmod of a directory", func(dir string, _ tree) error { return os.Chmod(filepath.Join(dir, "d"), 0o700) }},
	{"a link", func(dir string, _ tree) error {
		return errors.Join(os.Remove(filepath.Join(dir, "d/b.json")), os.Symlink("../a.json", filepath.Join(dir, "d/b.json")))
	}},
	{"an empty directory", func(dir string, _ tree) error { return os.MkdirAll(filepath.Join(dir, "empty"), 0o755) }},
	{"add", func(dir string, want tree) error {
		want["theirs/log"] = "one"
		return errors.Join(os.MkdirAll(filepath.Join(dir, "theirs"), 0o755), os.WriteFile(filepath.Join(dir, "theirs/log"), []byte("one"), 0o600))
	}},
	{"change of what they have added", func(dir string, want tree) error {
		name := filepath.Join(dir, "theirs/log")
		if _, err := os.Stat(name); err != nil {
			return nil
		}
		want["theirs/log"] = "two"
		return errors.Join(os.WriteFile(name+"~", []byte("two"), 0o600), os.Rename(name+"~", name))
	}},
	{"delete of what they have added", func(dir string, want tree) error {
		delete(want, "theirs/log")
		return os.RemoveAll(filepath.Join(dir, "theirs"))
	}},
	{"a change of the hidden generation", func(dir string, _ tree) error {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".*.limpet-*"))
		if err != nil || len(found) == 0 {
			return err
		}
		return os.RemoveAll(filepath.Join(found[0], "d"))
	}},
	{"no hidden generation", func(dir string, _ tree) error {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".*.limpet-*"))
		if err != nil || len(found) == 0 {
			return err
		}
		return os.RemoveAll(found[0])
	}},
}

// amend writes a tree that follows from the one before as an incremental pull does, and then what a
// check of the directory finds. It returns whether the changes alone were planned.
func amend(t *testing.T, target Target, before, content tree, commit string) bool {
	t.Helper()
	d, err := Open(t.Context(), target, owner)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.basedFrom = 1; strings.HasSuffix(commit, "3") || strings.HasSuffix(commit, "7") {
		d.basedFrom = len(d.was.list) + 1 // this manifest is whole again
	}
	var written []File
	var removed []string
	for _, f := range content.files() {
		if text, had := before[f.Path]; !had || text != content[f.Path] {
			written = append(written, f)
		}
	}
	for name := range before {
		if _, stays := content[name]; !stays {
			removed = append(removed, name)
		}
	}
	p, ok, err := d.Amend(d.was.Commit, commit, "", written, removed)
	if err == nil && ok {
		err = d.Write(t.Context(), p, content.read, func(File) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if _, _, err := Check(target, owner); err != nil || !ok {
		mustPut(t, target, commit, content)
	}
	return ok
}

// TestHands: whatever others do in the directory or beside it between writes, alone and in any order,
// the next write makes the tree, with the files of others.
func TestHands(t *testing.T) {
	t.Parallel()
	var amended atomic.Int32
	turn := func(t *testing.T, target Target, before, content, want tree, i int, hands ...hand) {
		t.Helper()
		for _, h := range hands {
			if err := h.do(target.String(), want); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s: %v", h.what, err)
			}
		}
		content["a.json"] = fmt.Sprint("A", i)
		maps.Copy(want, content)
		if i%3 == 0 {
			mustPut(t, target, fmt.Sprint("c", i), content)
		} else if amend(t, target, before, content, fmt.Sprint("c", i)) {
			amended.Add(1)
		}
		if check(t, target, want); t.Failed() {
			t.Fatalf("turn %d: %v", i, hands)
		}
		modes(t, target, content)
		if _, _, err := Check(target, owner); err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
		for _, dir := range []string{".", "d"} {
			if info, err := os.Stat(filepath.Join(target.String(), dir)); err != nil || info.Mode().Perm() != dirMode {
				t.Fatalf("turn %d: mode of %s: %v", i, dir, info.Mode())
			}
		}
		if _, err := os.Stat(filepath.Join(target.String(), "empty")); err == nil {
			t.Fatalf("turn %d: an empty directory is there", i)
		}
	}
	for _, h := range hands {
		t.Run(h.what, func(t *testing.T) {
			t.Parallel()
			target, content, want := permit(t), tree{"a.json": "A", "d/b.json": "B", "d/run.sh": "#!"}, tree{}
			mustPut(t, target, "c", content)
			for i := range 7 {
				before := maps.Clone(content)
				if i == 2 || i == 5 {
					turn(t, target, before, content, want, i, h)
				} else {
					turn(t, target, before, content, want, i)
				}
			}
		})
	}
	t.Run("in any order", func(t *testing.T) {
		t.Parallel()
		seed := suite.Seed(t)
		rng := rand.New(rand.NewPCG(seed, 29))
		for range suite.Count(20, 400) {
			target, content, want := permit(t), tree{"a.json": "A", "d/b.json": "B", "d/run.sh": "#!"}, tree{}
			mustPut(t, target, "c", content)
			for i := range 12 {
				var some []hand
				for range rng.IntN(3) {
					some = append(some, hands[rng.IntN(len(hands))])
				}
				before := maps.Clone(content)
				name := fmt.Sprintf([]string{"d/%d.json", "e/f/%d", "g/%d/h"}[rng.IntN(3)], rng.IntN(4))
				if _, there := content[name]; there && rng.IntN(2) == 0 {
					delete(content, name)
					delete(want, name)
				} else {
					content[name] = fmt.Sprint(i)
				}
				turn(t, target, before, content, want, i, some...)
			}
		}
		if amended.Load() == 0 {
			t.Error("the changes alone were never planned")
		}
	})
}

// TestKeptEdits: where edits are kept they stay in both generations, until Git changes the file.
func TestKeptEdits(t *testing.T) {
	t.Parallel()
	for _, replace := range []bool{false, true} {
		target, content := permit(t), tree{"a.json": "A", "b.json": "B"}
		keep := func(d *Dir) { d.KeepEdits = true }
		write := func(i int, want tree) {
			t.Helper()
			content["a.json"] = fmt.Sprint("A", i)
			want["a.json"] = content["a.json"]
			if _, err := put(t, target, fmt.Sprint("c", i), content, keep); err != nil {
				t.Fatal(err)
			}
			check(t, target, want)
		}
		write(0, tree{"b.json": "B"})
		write(1, tree{"b.json": "B"})
		name := filepath.Join(target.String(), "b.json")
		err := os.WriteFile(name+"~", []byte("E"), 0o644)
		if replace && err == nil {
			err = os.Rename(name+"~", name)
		} else {
			err = errors.Join(err, os.Remove(name+"~"), os.WriteFile(name, []byte("E"), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			write(2+i, tree{"b.json": "E"})
			if _, _, err := Check(target, owner); err == nil {
				t.Error("a check does not find the edit")
			}
		}
		content["b.json"] = "B2"
		write(6, tree{"b.json": "B2"})
		if _, _, err := Check(target, owner); err != nil {
			t.Error(err)
		}
	}
}

// TestNoted: files that another program has put in the place of the same ones, or has added before
// they came with a commit, are what the next write shows, and not what they took the place of.
func TestNoted(t *testing.T) {
	t.Parallel()
	target, content := permit(t), tree{"a.json": "A", "b.json": "B"}
	for i := range 3 {
		content["a.json"] = fmt.Sprint("A", i)
		mustPut(t, target, fmt.Sprint("c", i), content)
	}
	name := filepath.Join(target.String(), "b.json")
	moved := filepath.Join(filepath.Dir(target.String()), "mine.json")
	added, past := filepath.Join(target.String(), "new.json"), time.Now().Add(-time.Minute)
	if err := errors.Join(os.Rename(name, moved), os.WriteFile(name, []byte("B"), 0o644), os.Chtimes(name, past, past),
		os.WriteFile(added, []byte("N"), 0o644), os.Chtimes(added, past, past)); err != nil {
		t.Fatal(err)
	}
	content["new.json"] = "N"
	if got := mustPut(t, target, "c3", content); len(got) > 0 {
		t.Errorf("written %q", got)
	}
	if err := os.WriteFile(moved, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	content["a.json"] = "A4"
	mustPut(t, target, "c4", content)
	check(t, target, content)
	since := changed(t, name)
	content["a.json"] = "A5"
	if mustPut(t, target, "c5", content); changed(t, name) != since {
		t.Error("a file that stays is linked again")
	}
}

// TestEditMeanwhile: an edit of a file that stays, while the others are written or the former tree is
// removed, is found by a check.
func TestEditMeanwhile(t *testing.T) {
	t.Parallel()
	for writes := range 6 {
		during := []string{"file", "discard"}[writes%2]
		target, content := permit(t), tree{"a.json": "A", "b.json": "B"}
		name, past := filepath.Join(target.String(), "b.json"), time.Now().Add(-time.Minute)
		for i := range 1 + writes/2 {
			content["a.json"] = fmt.Sprint("A", i)
			mustPut(t, target, fmt.Sprint("c", i), content)
		}
		if err := os.Chtimes(name, past, past); err != nil {
			t.Fatal(err)
		}
		mustPut(t, target, "noted", content)
		content["a.json"] = "A9"
		if _, err := put(t, target, "c9", content, func(d *Dir) {
			d.noSwap = during == "discard"
			d.step = func(step string) {
				if step != during {
					return
				}
				err := errors.Join(os.WriteFile(name, []byte("E"), 0o644), os.Chtimes(name, past, past.Add(time.Second)))
				if err != nil {
					t.Error(err)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Check(target, owner); err == nil {
			t.Errorf("after %d writes the edit at the step %s is not found", 1+writes/2, during)
		}
	}
}

// TestAddedMeanwhile: files that others add or replace while a tree is written stay.
func TestAddedMeanwhile(t *testing.T) {
	t.Parallel()
	for writes := range 6 {
		target, content := permit(t), tree{"a.json": "A", "d/b.json": "B"}
		mustPut(t, target, "c", content)
		theirs := func(files tree) {
			for name, text := range files {
				name = filepath.Join(target.String(), name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name+"~", []byte(text), 0o644),
					os.Rename(name+"~", name)); err != nil {
					t.Error(err)
				}
			}
		}
		theirs(tree{"d/log": "one"})
		for i := range writes / 2 {
			content["a.json"] = fmt.Sprint("A", i)
			mustPut(t, target, fmt.Sprint("c", i), content)
		}
		content["a.json"] = "A9"
		late := tree{"d/log": "two", "new": "N", "e/f/new": "F"}
		if _, err := put(t, target, "c9", content, func(d *Dir) {
			d.noSwap = writes%2 == 1
			d.step = func(step string) {
				if step == "file" {
					theirs(late)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(content)
		maps.Copy(want, late)
		check(t, target, want)
		mustPut(t, target, "c10", content)
		check(t, target, want)
	}
}

// lose does to the hidden generation what a power cut may do: nothing of it was synced.
func lose(t *testing.T, target Target, rng *rand.Rand) {
	t.Helper()
	hidden := generation(t, target)
	if hidden == "" {
		return
	}
	err := filepath.WalkDir(hidden, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.Name() == filepath.Base(sparePath):
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, []byte(strings.Replace(string(data), boot(), "another start", 1)), 0o644)
		case !e.Type().IsRegular():
			return nil
		}
		info, err := e.Info()
		if err == nil && info.Sys().(*syscall.Stat_t).Nlink == 1 && rng.IntN(2) == 0 {
			return os.Truncate(name, 0)
		}
		if err == nil && rng.IntN(3) == 0 {
			return os.Remove(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk: a write without space for a file, or may not write, leaves the old tree, and the
// next one succeeds.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	target, content := permit(t), tree{"a.json": "A", "d/b.json": "B"}
	mustPut(t, target, "c0", content)
	for i, fault := range []error{syscall.ENOSPC, syscall.EACCES, syscall.ENOSPC} {
		before := maps.Clone(content)
		content["a.json"], content["new.json"] = fmt.Sprint("A", i), fmt.Sprint(i)
		d, err := Open(t.Context(), target, owner)
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Plan("c", "", content.files())
		if err != nil {
			t.Fatal(err)
		}
		err = d.Write(t.Context(), p, func(context.Context, File) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(fault))), nil
		}, func(File) {})
		if d.Close(); !errors.Is(err, fault) {
			t.Errorf("%v: %v", fault, err)
		}
		check(t, target, before)
		if _, _, err := Check(target, owner); err != nil {
			t.Errorf("%v: %v", fault, err)
		}
		if got := mustPut(t, target, fmt.Sprint("c", i), content); !slices.Contains(got, "a.json") {
			t.Errorf("%v: written %q", fault, got)
		}
		check(t, target, content)
	}
}
