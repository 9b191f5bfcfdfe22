package sink

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv/suite"
)

// tree is a tree of files in memory: path -> content.
type tree map[string]string

func hash(content string) string {
	h := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content))
	return hex.EncodeToString(h[:])
}

func (t tree) files() []File {
	var out []File
	for _, p := range slices.Sorted(maps.Keys(t)) {
		out = append(out, File{Path: p, Hash: hash(t[p]), Size: int64(len(t[p])), Exec: strings.HasSuffix(p, ".sh")})
	}
	return out
}

func (t tree) read(_ context.Context, f File) (io.ReadCloser, error) {
	content, there := t[f.Path]
	if !there {
		return nil, fmt.Errorf("no file %s", f.Path)
	}
	return io.NopCloser(strings.NewReader(content)), nil
}

const owner = "default/repo"

// put writes a tree and returns the files that were written.
func put(t testing.TB, target Target, commit string, content tree, prepare func(*Dir)) ([]string, error) {
	t.Helper()
	d, err := Open(context.Background(), target, owner)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if prepare != nil {
		prepare(d)
	}
	p, err := d.Plan(commit, "", content.files())
	if err != nil {
		return nil, err
	}
	written := make(chan string, len(content)+1)
	err = d.Write(context.Background(), p, content.read, func(f File) { written <- f.Path })
	close(written)
	var out []string
	for name := range written {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, err
}

func mustPut(t testing.TB, target Target, commit string, content tree) []string {
	t.Helper()
	out, err := put(t, target, commit, content, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// on reads what is in a directory, the manifest left out.
func on(t testing.TB, dir string) tree {
	t.Helper()
	out := tree{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if e != nil && e.Name() == manifestDir {
				return fs.SkipDir
			}
			return err
		}
		if !e.Type().IsRegular() {
			out[p] = e.Type().String()
			return nil
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func check(t testing.TB, target Target, want tree) {
	t.Helper()
	if got := on(t, target.String()); !maps.Equal(got, want) {
		t.Errorf("directory holds\n%v\nwant\n%v", got, want)
	}
	entries, err := os.ReadDir(filepath.Dir(target.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".limpet-") {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(target.String()), e.Name(), sparePath)); err != nil {
			t.Errorf("left behind: %s, %v", e.Name(), err)
		}
	}
}

func permit(t testing.TB) Target {
	t.Helper()
	prefix := t.TempDir()
	target, err := Permit(filepath.Join(prefix, "site", "dashboards"), []string{prefix})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestWrites(t *testing.T) {
	t.Parallel()
	target := permit(t)
	one := tree{"a.json": "A", "dir/sub/b.json": "B", "run.sh": "#!"}
	if got := mustPut(t, target, "c1", one); len(got) != 3 {
		t.Errorf("written %q", got)
	}
	check(t, target, one)
	for name, mode := range map[string]fs.FileMode{"a.json": 0o644, "run.sh": 0o755, "dir": 0o755, "dir/sub": 0o755, ".": 0o755,
		manifestPath: 0o644} {
		info, err := os.Stat(filepath.Join(target.String(), name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want %v", name, info.Mode(), err, mode)
		}
	}
	before := inodes(t, target)
	if got := mustPut(t, target, "c1", one); len(got) != 0 || !maps.Equal(before, inodes(t, target)) {
		t.Errorf("a second write of one commit writes %q", got)
	}
	if got := mustPut(t, target, "c2", one); len(got) != 0 || !maps.Equal(before, inodes(t, target)) {
		t.Errorf("another commit with the same files writes %q", got)
	}
	two := tree{"a.json": "A2", "dir/sub/b.json": "B", "dir/c.json": "C"}
	if got := mustPut(t, target, "c3", two); !slices.Equal(got, []string{"a.json", "dir/c.json"}) {
		t.Errorf("written %q", got)
	}
	check(t, target, two)
	if inodes(t, target)["dir/sub/b.json"] != before["dir/sub/b.json"] {
		t.Error("an unchanged file is written again")
	}
	// What somebody has changed comes back.
	if err := os.WriteFile(filepath.Join(target.String(), "a.json"), []byte("XX"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := mustPut(t, target, "c3", two); !slices.Equal(got, []string{"a.json"}) {
		t.Errorf("written %q", got)
	}
	check(t, target, two)
	mustPut(t, target, "c4", tree{})
	check(t, target, tree{})
	// A file becomes a directory, and the other way round.
	mustPut(t, target, "c5", tree{"x": "file"})
	mustPut(t, target, "c6", tree{"x/y": "in"})
	mustPut(t, target, "c7", tree{"x": "file"})
	check(t, target, tree{"x": "file"})
}

func inodes(t testing.TB, target Target) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	err := filepath.WalkDir(target.String(), func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(target.String(), p)
		if rel == manifestDir { // the manifest may be written again, with times that can be trusted by then
			return fs.SkipDir
		}
		out[rel] = info.Sys().(*syscall.Stat_t).Ino
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPermit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dir, err string }{
		{"/srv/limpet/a", ""},
		{"/srv/limpet/a/b/", ""},
		{"/opt/x/../y", ""},
		{"/srv/limpet", "--sink-prefix"},
		{"/srv/limpetx/a", "--sink-prefix"},
		{"/srv/limpet/../other", "--sink-prefix"},
		{"/etc/grafana", "--sink-prefix"},
		{"srv/limpet/a", "absolute"},
		{"", "absolute"},
		{"/srv/limpet/a\x00b", "not a path"},
	} {
		got, err := Permit(c.dir, []string{"/srv/limpet/", "/opt", "relative"})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("Permit(%q) = %v, want %q", c.dir, err, c.err)
		}
		if err == nil && got.String() != filepath.Clean(c.dir) {
			t.Errorf("Permit(%q) = %s", c.dir, got)
		}
	}
	_, err := Permit("/srv/grafana/dashboards", nil)
	if err == nil || !strings.Contains(err.Error(), "--sink-prefix /srv/grafana") {
		t.Errorf("without a prefix: %v", err)
	}
}

// TestForeign: what is not ours is neither overwritten nor lost.
func TestForeign(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, target Target, files ...string) {
		t.Helper()
		for _, f := range files {
			p := filepath.Join(target.String(), f)
			if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte("theirs"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func(t *testing.T, target Target, content tree, text string) {
		t.Helper()
		before := on(t, filepath.Dir(target.String()))
		if _, err := put(t, target, "c", content, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q", err, text)
		}
		if after := on(t, filepath.Dir(target.String())); !maps.Equal(before, after) {
			t.Errorf("refused, but changed: %v to %v", before, after)
		}
	}
	t.Run("not empty", func(t *testing.T) {
		t.Parallel()
		target := permit(t)
		write(t, target, "mine.json")
		refused(t, target, tree{"a.json": "A"}, "was not made by limpet")
	})
	t.Run("a temporary directory", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"/s/.a.limpet-new-x", "/s/.a.limpet-old-x/b"} {
			if _, err := Permit(name, []string{"/s"}); err == nil {
				t.Errorf("%s is permitted", name)
			}
		}
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		target := permit(t)
		if err := os.MkdirAll(target.String(), 0o755); err != nil {
			t.Fatal(err)
		}
		mustPut(t, target, "c", tree{"a.json": "A"})
		check(t, target, tree{"a.json": "A"})
	})
	t.Run("another repository", func(t *testing.T) {
		t.Parallel()
		target := permit(t)
		mustPut(t, target, "c", tree{"a.json": "A"})
		if _, err := Open(context.Background(), target, "default/other"); err == nil ||
			!strings.Contains(err.Error(), "belongs to repository default/repo") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("added files stay", func(t *testing.T) {
		t.Parallel()
		target := permit(t)
		mustPut(t, target, "c1", tree{"a.json": "A"})
		write(t, target, "local/mine.json")
		mustPut(t, target, "c2", tree{"b.json": "B"})
		check(t, target, tree{"b.json": "B", "local/mine.json": "theirs"})
		refused(t, target, tree{"local/mine.json": "ours"}, "local/mine.json")
		refused(t, target, tree{"local": "ours"}, "in the way")
		refused(t, target, tree{"local/mine.json/a.json": "ours"}, "in the way")
	})
	t.Run("a link as the directory", func(t *testing.T) {
		t.Parallel()
		target := permit(t)
		elsewhere := t.TempDir()
		if err := errors.Join(os.MkdirAll(filepath.Dir(target.String()), 0o755), os.Symlink(elsewhere, target.String())); err != nil {
			t.Fatal(err)
		}
		refused(t, target, tree{"a.json": "A"}, "symbolic link")
		if len(on(t, elsewhere)) > 0 {
			t.Error("something was written elsewhere")
		}
	})
	t.Run("a link above the directory", func(t *testing.T) {
		t.Parallel()
		prefix, elsewhere := t.TempDir(), t.TempDir()
		if err := os.Symlink(elsewhere, filepath.Join(prefix, "site")); err != nil {
			t.Fatal(err)
		}
		target, err := Permit(filepath.Join(prefix, "site", "dashboards"), []string{prefix})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := put(t, target, "c", tree{"a.json": "A"}, nil); err == nil || len(on(t, elsewhere)) > 0 {
			t.Errorf("a link has led out of the prefix: %v %v", err, on(t, elsewhere))
		}
	})
	t.Run("a link inside", func(t *testing.T) {
		t.Parallel()
		target := permit(t)
		mustPut(t, target, "c1", tree{"a.json": "A", "d/b.json": "B"})
		elsewhere := t.TempDir()
		if err := errors.Join(os.RemoveAll(filepath.Join(target.String(), "d")),
			os.Symlink(elsewhere, filepath.Join(target.String(), "d"))); err != nil {
			t.Fatal(err)
		}
		if _, err := put(t, target, "c2", tree{"a.json": "A", "d/b.json": "B"}, nil); err == nil ||
			!strings.Contains(err.Error(), "d is not a regular file") {
			t.Errorf("error %v", err)
		}
		if len(on(t, elsewhere)) > 0 {
			t.Error("something was written through the link")
		}
	})
	t.Run("inside another sink", func(t *testing.T) {
		t.Parallel()
		target := permit(t)
		mustPut(t, target, "c1", tree{"a.json": "A"})
		inner, err := Permit(filepath.Join(target.String(), "inner"), []string{target.prefix})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := put(t, inner, "c", tree{"a.json": "A"}, nil); err == nil || !strings.Contains(err.Error(), "lies inside") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no prefix on the disk", func(t *testing.T) {
		t.Parallel()
		target, err := Permit("/nonexistent/limpet/a", []string{"/nonexistent/limpet"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := put(t, target, "c", tree{}, nil); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
			t.Errorf("error %v", err)
		}
	})
}

// TestFaultLeavesTheOldTree: an error on the way changes nothing.
func TestFaultLeavesTheOldTree(t *testing.T) {
	t.Parallel()
	target := permit(t)
	one := tree{"a.json": "A", "b.json": "B"}
	mustPut(t, target, "c1", one)
	d, err := Open(context.Background(), target, owner)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	two := tree{"a.json": "A2", "b.json": "B2", "c.json": "C"}
	p, err := d.Plan("c2", "", two.files())
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("blob lost")
	read := func(ctx context.Context, f File) (io.ReadCloser, error) {
		if f.Path == "c.json" {
			return nil, lost
		}
		return two.read(ctx, f)
	}
	if err := d.Write(context.Background(), p, read, func(File) {}); !errors.Is(err, lost) {
		t.Errorf("error %v", err)
	}
	check(t, target, one)
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if err := d.Write(ctx, p, two.read, func(File) {}); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	check(t, target, one)
}

// TestOneWriter: a second writer waits for the first.
func TestOneWriter(t *testing.T) {
	t.Parallel()
	target := permit(t)
	d, err := Open(context.Background(), target, owner)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, target, owner); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	opened := make(chan error, 1)
	go func() {
		second, err := Open(context.Background(), target, owner)
		if err == nil {
			err = second.Close()
		}
		opened <- err
	}()
	d.Close()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

const crashEnv = "LIMPET_SINK_CRASH" // step; the directory follows after a colon

// TestCrash ends a real process at each step of a write, into a new directory, into one without a
// spare generation and into one with it, and cuts the power as well: what was not synced may be gone.
// What is found then is the old tree or the new one, whole, and the next write cleans up.
func TestCrash(t *testing.T) {
	zero := tree{"a.json": "A0", "d/b.json": "B", "gone.json": "G", "kept": "K"}
	one := tree{"a.json": "A", "d/b.json": "B", "gone.json": "G", "kept": "K"}
	two := tree{"a.json": "A2", "d/b.json": "B", "new/c.json": "C", "kept": "K"}
	if step, dir, crash := strings.Cut(os.Getenv(crashEnv), ":"); crash {
		target, err := Permit(dir, []string{filepath.Dir(filepath.Dir(dir))})
		if err != nil {
			t.Fatal(err)
		}
		_, err = put(t, target, "c2", two, func(d *Dir) {
			step, d.noSwap = strings.CutPrefix(step, "rename-")
			d.step = func(name string) {
				if name == step {
					os.Exit(7)
				}
			}
		})
		t.Fatalf("the step %s did not come: %v", step, err)
	}
	first := []string{"stage", "file", "manifest", "sync", "switch"}
	second := append(slices.Clone(first), "switched", "keep", "rename-switch", "rename-between", "rename-switched")
	third := append(slices.Clone(second[1:]), "level")
	seed := suite.Seed(t)
	for writes, steps := range [][]string{first, second, third} {
		for _, step := range steps {
			for _, cut := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s after %d writes, power cut %v", step, writes, cut), func(t *testing.T) {
					t.Parallel()
					target := permit(t)
					for _, before := range []tree{zero, one}[2-writes:] {
						mustPut(t, target, "c1", before)
					}
					c := exec.Command(os.Args[0], "-test.run=^TestCrash$")
					c.Env = append(os.Environ(), crashEnv+"="+step+":"+target.String())
					out, err := c.CombinedOutput()
					if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
						t.Fatalf("%v: %s", err, out)
					}
					if cut && step != "rename-between" {
						lose(t, target, rand.New(rand.NewPCG(seed, 1)))
					}
					whole := func(when string) {
						t.Helper()
						if got := on(t, target.String()); !maps.Equal(got, one) && !maps.Equal(got, two) {
							t.Errorf("after the %s the directory holds %v", when, got)
						}
					}
					if _, err := os.Lstat(target.String()); err == nil {
						whole("crash")
					} else if writes > 0 && step != "rename-between" {
						t.Error("after the crash there is no directory")
					}
					// Opening alone brings a tree back and removes what was left.
					d, err := Open(context.Background(), target, owner)
					if err != nil {
						t.Fatal(err)
					}
					if d.Close(); writes > 0 {
						whole("recovery")
						if _, _, err := Check(target, owner); err != nil {
							t.Error(err)
						}
					}
					for _, next := range []tree{two, one, two, zero} {
						mustPut(t, target, "c2", next)
						check(t, target, next)
					}
				})
			}
		}
	}
}

// TestLeftOut: a file that its reader leaves out is neither written nor known afterwards, and the uids
// that were set while the others were read are.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	target, content := permit(t), tree{"a.json": "A", "b.json": "B", "only/c.json": "C"}
	d, err := Open(t.Context(), target, owner)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !d.IsFirst() {
		t.Error("it is not the first write")
	}
	p, err := d.Plan("c", "", content.files())
	if err != nil {
		t.Fatal(err)
	}
	err = d.Write(t.Context(), p, func(ctx context.Context, f File) (io.ReadCloser, error) {
		if f.Path != "b.json" {
			return nil, ErrLeftOut
		}
		f.UID = "b"
		p.SetUID(f)
		return content.read(ctx, f)
	}, func(File) {})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	check(t, target, tree{"b.json": "B"})
	if d, err = Open(t.Context(), target, owner); err != nil {
		t.Fatal(err)
	}
	if err := d.Load(); err != nil {
		t.Fatal(err)
	}
	f, has := d.Last("b.json")
	if !has || f.UID != "b" || d.Files() != 1 || len(p.Added) != 1 || d.IsFirst() {
		t.Errorf("%+v, %v, %d files, %d added", f, has, d.Files(), len(p.Added))
	}
	d.Close()
	mustPut(t, target, "c2", content)
	check(t, target, content)
}

// TestCheck: what a look at the sizes and the times of the files finds. The content decides where
// the time differs.
func TestCheck(t *testing.T) {
	t.Parallel()
	target := permit(t)
	content := tree{"a.json": "A", "dir/b.json": "B"}
	file := filepath.Join(target.String(), "a.json")
	for _, tt := range []struct {
		what  string
		owner string
		act   func() error
		ok    bool
	}{
		{"as it was written", owner, func() error { return nil }, true},
		{"another owner", "default/other", func() error { return nil }, false},
		{"another time", owner, func() error { return os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)) }, true},
		{"other content of that size", owner, func() error {
			return errors.Join(os.WriteFile(file, []byte("X"), 0o644), os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)))
		}, false},
		{"another size", owner, func() error { return os.WriteFile(file, []byte("AA"), 0o644) }, false},
		{"gone", owner, func() error { return os.Remove(file) }, false},
	} {
		if mustPut(t, target, "c1", content); tt.act() != nil {
			t.Fatal(tt.what)
		}
		commit, _, err := Check(target, tt.owner)
		if (err == nil) != tt.ok || tt.ok && commit != "c1" {
			t.Errorf("%s: %q, %v", tt.what, commit, err)
		}
		if err := Probe(target, tt.owner); (err == nil) != (tt.owner == owner) {
			t.Errorf("%s: probe: %v", tt.what, err)
		}
	}
}
