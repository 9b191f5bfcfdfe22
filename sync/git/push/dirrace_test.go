package push_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"limpet/sync/git"
	"limpet/sync/testenv/gittest"
)

// TestWriteDirectoryStops: a write that is under way ends with the cause of its context, and at a
// file that another writer has changed, made or deleted.
func TestWriteDirectoryStops(t *testing.T) {
	t.Parallel()
	const files = 400
	lost := errors.New("the lease is lost")
	for name, act := range map[string]func(d *directory, cancel context.CancelCauseFunc){
		"lease lost": func(_ *directory, cancel context.CancelCauseFunc) { cancel(lost) },
		"changed":    func(d *directory, _ context.CancelCauseFunc) { d.write("f399.json", "a user's") },
		"made":       func(d *directory, _ context.CancelCauseFunc) { d.write("z.json", "a user's") },
		"moved":      func(d *directory, _ context.CancelCauseFunc) { d.write("from.json", "a user's") },
		"deleted":    func(d *directory, _ context.CancelCauseFunc) { d.write("gone.json", "a user's") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := map[string]string{"from.json": "moves", "gone.json": "goes"}
			edits := []git.Edit{{Path: "z.json", Blob: git.NewBlob([]byte("new"))}, {Path: "from.json", To: "to.json"}, {Path: "gone.json"}}
			for i := range files {
				name := fmt.Sprintf("f%03d.json", i)
				before[name] = "old"
				edits = append(edits, git.Edit{Path: name, Blob: git.NewBlob([]byte("new"))})
			}
			d := newDirectory(t, before)
			base := d.sync()
			made, err := d.m.Compose(t.Context(), d.remote, base.Hash, edits)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			began := make(chan struct{})
			go func() {
				defer close(began)
				for ctx.Err() == nil {
					if b, _ := os.ReadFile(filepath.Join(d.dir, "f000.json")); string(b) == "new" {
						act(d, cancel)
						return
					}
				}
			}()
			err = d.m.Push(ctx, d.remote, base.Name, base.Hash, made.Directory())
			<-began
			after := d.files()
			if name == "lease lost" {
				if !errors.Is(err, lost) || after["gone.json"] == "" || after["f399.json"] != "old" {
					t.Errorf("%v, %q", err, after["f399.json"])
				}
				return
			}
			kept, new := 0, 0
			for name, text := range after {
				if text == "a user's" {
					kept++
				}
				if text == "new" || name == "to.json" {
					new++
				}
			}
			gittest.ErrorIs(t, err, git.Overtaken, fmt.Sprintf("%d of 403 changes are made", new))
			if kept != 1 {
				t.Error("the change of a user is lost")
			}
		})
	}
}

// TestWriteDirectoryNothing: what is in the way of the last change is found before the first.
func TestWriteDirectoryNothing(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, map[string]string{"a.json": "1", "b.json": "2"})
	base := d.sync()
	made, err := d.m.Compose(t.Context(), d.remote, base.Hash, []git.Edit{{Path: "a.json", Blob: git.NewBlob([]byte("2"))},
		{Path: "b.json", To: "z.json"}})
	if err == nil { // no tree has it
		err = syscall.Mkfifo(filepath.Join(d.dir, "z.json"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	gittest.ErrorIs(t, d.m.Push(t.Context(), d.remote, base.Name, base.Hash, made.Directory()), git.Overtaken, "z.json has changed")
	if data, err := os.ReadFile(filepath.Join(d.dir, "a.json")); string(data) != "1" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// TestWriteDirectoryOnce: one process writes to a directory at a time, and who waits ends with its
// context.
func TestWriteDirectoryOnce(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, map[string]string{"a.json": "1"})
	base := d.sync()
	made, err := d.m.Compose(t.Context(), d.remote, base.Hash, []git.Edit{{Path: "a.json", Blob: git.NewBlob([]byte("2"))}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.m.Push(ctx, d.remote, base.Name, base.Hash, made.Directory()); !errors.Is(err, context.DeadlineExceeded) || d.files()["a.json"] != "1" {
		t.Errorf("%v", err)
	}
}

// TestWriteDirectoryLinks: links of a directory that moves go with it, those of one text too.
func TestWriteDirectoryLinks(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, map[string]string{"a/x.json": "1"})
	for name, to := range map[string]string{"one": "1", "two": "2", "also": "2"} {
		if err := os.Symlink(to, filepath.Join(d.dir, "a", name)); err != nil {
			t.Fatal(err)
		}
	}
	base := d.sync()
	made, err := d.m.Compose(t.Context(), d.remote, base.Hash, []git.Edit{{Path: "a/", To: "b/a/"}})
	if err == nil {
		err = d.m.Push(t.Context(), d.remote, base.Name, base.Hash, made.Directory())
	}
	want := map[string]string{"b/": "", "b/a/": "", "b/a/x.json": "1", "b/a/one": "1", "b/a/two": "2", "b/a/also": "2"}
	if got := d.files(); err != nil || !maps.Equal(got, want) || d.sync().Hash != made.Directory().Hash {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWriteDirectoryEmpty: an empty directory takes its first files, and only a push that expects
// it to be empty.
func TestWriteDirectoryEmpty(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, nil)
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	made, err := d.m.Compose(t.Context(), d.remote, "", []git.Edit{{Path: "a/b.json", Blob: git.NewBlob([]byte("x"))}})
	if err != nil {
		t.Fatal(err)
	}
	commit := made.Directory()
	gittest.ErrorIs(t, d.m.Push(t.Context(), d.remote, "refs/heads/main", commit.Hash, commit), git.Empty)
	for range 2 {
		if err := d.m.Push(t.Context(), d.remote, "refs/heads/main", "", commit); err != nil {
			t.Fatal(err)
		}
	}
	if tip := d.sync(); tip.Hash != commit.Hash || d.files()["a/b.json"] != "x" {
		t.Errorf("%v", d.files())
	}
	d.write("c.json", "1")
	gittest.ErrorIs(t, d.m.Push(t.Context(), d.remote, "refs/heads/main", "", commit), git.Overtaken)
}
