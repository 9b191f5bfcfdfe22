package git

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
)

// bundleDir is a directory of bundles and the mirrors that read it.
func bundleDir(t *testing.T) (*Mirrors, Remote, string) {
	dir := filepath.Join(t.TempDir(), "in box")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return openMirrors(t, Options{AllowLocal: []string{filepath.Dir(dir)}}), Remote{URL: "bundle://" + strings.ReplaceAll(dir, " ", "%20")}, dir
}

// export writes a bundle of a mirror.
func export(t *testing.T, m *Mirrors, r Remote, q BundleQuery, file string) {
	t.Helper()
	var out bytes.Buffer
	if err := m.Bundle(t.Context(), r, q, &out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// history is an origin with a history of n commits, a merge and a file that goes back.
func history(t *testing.T, n int) (*gittest.Origin, map[string]string) {
	o := gittest.NewOrigin(t, t.TempDir(), "x.git")
	files := map[string]string{"a/b/c.json": gittest.Dashboard("c", 0, 40), "README.md": "hi"}
	for i := range 30 {
		files[fmt.Sprintf("d%d/x%d.json", i%3, i)] = gittest.Dashboard(fmt.Sprint(i), 0, 20)
	}
	o.Commit("first", files)
	for i := range n {
		files[fmt.Sprintf("d%d/x%d.json", i%3, i%30)] = gittest.Dashboard(fmt.Sprint(i%30), (i+1)%2, 20)
		o.Commit(fmt.Sprint("change ", i), files)
	}
	return o, files
}

// TestBundleAgainstGit: git reads what is written here, and what git writes is read, as a whole and
// as a difference.
func TestBundleAgainstGit(t *testing.T) {
	t.Parallel()
	o, files := history(t, 8)
	o.Git("checkout", "-q", "-b", "side", "HEAD~3")
	o.Git("commit", "-q", "--allow-empty", "-m", "on the side")
	o.Git("checkout", "-q", "main")
	o.Git("merge", "-q", "--no-ff", "-m", "merge", "side")
	o.Git("tag", "-a", "v1.0.0", "-m", "first release")
	o.Git("push", "-q", "--tags", "origin", "main")
	first := o.Git("rev-parse", "HEAD")
	m, r, dir := bundleDir(t)
	o.Git("bundle", "create", "-q", filepath.Join(dir, "by-git.bundle"), "main", "v1.0.0", "HEAD")
	if ref, stats := syncRef(t, m, r, ""); ref.Hash != first || ref.Name != "refs/heads/main" || !stats.Full {
		t.Fatalf("%+v %+v, want %s", ref, stats, first)
	}
	if got := content(t, m, r, first, ""); !maps.Equal(got, files) {
		t.Error("content differs")
	}
	fsck(t, m, r)
	tag, err := m.Resolve(t.Context(), r, gitref.Selector{Tag: "v1.0.0"})
	if err != nil || tag.Hash != first || tag.Tag != o.Git("rev-parse", "v1.0.0") {
		t.Fatalf("%+v %v", tag, err)
	}
	if _, err := m.Fetch(t.Context(), r, tag); err != nil {
		t.Fatal(err)
	}

	out := filepath.Join(t.TempDir(), "by-limpet.bundle")
	export(t, m, r, BundleQuery{Ref: tag}, out)
	clone := filepath.Join(t.TempDir(), "clone")
	gittest.Git(t, dir, nil, "clone", "-q", "-b", "v1.0.0", out, clone)
	for _, args := range [][]string{{"bundle", "verify", "-q", out}, {"fsck", "--full", "--strict"}} {
		gittest.Git(t, clone, nil, args...)
	}
	if got, want := gittest.Git(t, clone, nil, "rev-list", "--count", "HEAD"), o.Git("rev-list", "--count", "main"); got != want {
		t.Errorf("%s commits, want %s", got, want)
	}
	whole, err := os.Stat(filepath.Join(dir, "by-git.bundle"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(out); err != nil || info.Size() > 3*whole.Size() {
		t.Errorf("%d bytes, git needs %d: %v", info.Size(), whole.Size(), err)
	}

	files["d1/x1.json"], files["new/file"] = gittest.Dashboard("1", 77, 20), "new"
	second := o.Commit("second", files)
	o.Git("bundle", "create", "-q", filepath.Join(dir, "thin.bundle"), first+"..main")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "thin.bundle"), later, later); err != nil {
		t.Fatal(err)
	}
	ref, stats := syncRef(t, m, r, "main")
	if ref.Hash != second || stats.Full {
		t.Fatalf("%+v %+v, want %s", ref, stats, second)
	}
	if got := content(t, m, r, second, ""); !maps.Equal(got, files) {
		t.Error("content differs")
	}
	fsck(t, m, r)

	thin := filepath.Join(t.TempDir(), "thin.bundle")
	export(t, m, r, BundleQuery{Ref: ref, Since: first}, thin)
	if info, err := os.Stat(thin); err != nil || info.Size() > 2000 {
		t.Errorf("%d bytes: %v", info.Size(), err)
	}
	gittest.Git(t, clone, nil, "bundle", "verify", "-q", thin)
	gittest.Git(t, clone, nil, "fetch", "-q", thin, "main")
	if got := gittest.Git(t, clone, nil, "rev-parse", "FETCH_HEAD"); got != second {
		t.Errorf("fetched %s, want %s", got, second)
	}
	gittest.Git(t, clone, nil, "fsck", "--full", "--strict")

	other, at, dir2 := bundleDir(t)
	copyFile(t, thin, filepath.Join(dir2, "thin.bundle"))
	resolved, err := other.Resolve(t.Context(), at, gitref.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Fetch(t.Context(), at, resolved)
	gittest.ErrorIs(t, err, CommitNotFound, first)
	copyFile(t, out, filepath.Join(dir2, "whole.bundle"))
	if err := os.Remove(filepath.Join(dir2, "thin.bundle")); err != nil {
		t.Fatal(err)
	}
	syncRef(t, other, at, "")
	copyFile(t, thin, filepath.Join(dir2, "thin.bundle"))
	if ref, _ := syncRef(t, other, at, ""); ref.Hash != second {
		t.Errorf("%+v, want %s", ref, second)
	}
	fsck(t, other, at)
}

// TestBundleOfShallowMirror: a bundle of one commit is read without the commits before it.
func TestBundleOfShallowMirror(t *testing.T) {
	t.Parallel()
	o, files := history(t, 3)
	local := Remote{URL: o.Bare}
	from := openMirrors(t, Options{AllowLocal: []string{filepath.Dir(o.Bare)}})
	tip, _ := syncRef(t, from, local, "main")
	m, r, dir := bundleDir(t)
	export(t, from, local, BundleQuery{Ref: tip}, filepath.Join(dir, "one.bundle"))
	if ref, _ := syncRef(t, m, r, ""); ref.Hash != tip.Hash {
		t.Fatalf("%+v", ref)
	}
	if got := content(t, m, r, tip.Hash, ""); !maps.Equal(got, files) {
		t.Error("content differs")
	}
	fsck(t, m, r)
	files["d0/x0.json"] = "{}"
	o.Commit("next", files)
	next, _ := syncRef(t, from, local, "main")
	export(t, from, local, BundleQuery{Ref: next, Since: tip.Hash, Depth: 1}, filepath.Join(dir, "two.bundle"))
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "two.bundle"), later, later); err != nil {
		t.Fatal(err)
	}
	if ref, stats := syncRef(t, m, r, "main"); ref.Hash != next.Hash || stats.Full {
		t.Fatalf("%+v %+v", ref, stats)
	}
	if got := content(t, m, r, next.Hash, ""); !maps.Equal(got, files) {
		t.Error("content differs")
	}
	fsck(t, m, r)
	err := from.Bundle(t.Context(), local, BundleQuery{Ref: next, Since: strings.Repeat("ab", 20)}, &bytes.Buffer{})
	gittest.ErrorIs(t, err, CommitNotFound, strings.Repeat("ab", 20))
	gittest.ErrorIs(t, from.Bundle(t.Context(), local, BundleQuery{Ref: next, Since: next.Hash}, &bytes.Buffer{}), Empty)
}

// TestBundleHalfCopied: a file that is not whole is passed over, for the one before it, and taken
// when it is whole.
func TestBundleHalfCopied(t *testing.T) {
	t.Parallel()
	o, files := history(t, 3)
	m, r, dir := bundleDir(t)
	o.Git("bundle", "create", "-q", filepath.Join(dir, "old.bundle"), "main", "HEAD")
	old := o.Git("rev-parse", "HEAD")
	files["README.md"] = "new"
	next := o.Commit("next", files)
	o.Git("bundle", "create", "-q", filepath.Join(o.Work, "next"), "main", "HEAD")
	data := gittest.Must[[]byte](t)(os.ReadFile(filepath.Join(o.Work, "next")))
	later := time.Now().Add(time.Hour)
	for _, n := range []int{0, 1, 15, 16, 40, 100, len(data) / 2, len(data) - 1, len(data)} {
		path := filepath.Join(dir, "next.bundle")
		if err := os.WriteFile(path, data[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
		want := old
		if n == len(data) {
			want = next
		}
		if ref, err := m.Resolve(t.Context(), r, gitref.Selector{}); err != nil || ref.Hash != want {
			t.Errorf("%d of %d bytes: %+v %v, want %s", n, len(data), ref, err, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "old.bundle")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "next.bundle"), 500); err != nil {
		t.Fatal(err)
	}
	_, err := m.Resolve(t.Context(), r, gitref.Selector{})
	gittest.ErrorIs(t, err, Corrupt, "checksum")
	_, err = openMirrors(t, Options{}).Resolve(t.Context(), r, gitref.Selector{})
	gittest.ErrorIs(t, err, Refused, "--local-git-prefix")
}

// TestBundleChain: a bundle and what builds on it may come at once, in any order, whatever the
// clocks of their makers said.
func TestBundleChain(t *testing.T) {
	t.Parallel()
	for name, days := range map[string][4]int{"clocks right": {1, 2, 3, 4}, "first in the future": {9, 2, 3, 4}, "going back": {9, 8, 7, 6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := gittest.NewOrigin(t, t.TempDir(), "x.git")
			m, r, dir := bundleDir(t)
			from, tip, since := "M 100644 inline kept\ndata 1\nk\n", "", "main"
			for i, file := range []string{"z", "b", "y", "a"} {
				made := fmt.Sprintf("commit refs/heads/main\ncommitter C <c@example.com> %d +0000\ndata 1\nc\n%sM 100644 inline x\ndata 1\n%s\n",
					1800000000+days[i]*86400, from, file)
				gittest.Git(t, o.Work, []byte(made), "fast-import", "--quiet")
				o.Git("bundle", "create", "-q", filepath.Join(dir, file+".bundle"), since)
				tip = o.Git("rev-parse", "main")
				from, since = "from "+tip+"\n", tip+"..main"
			}
			if err := os.Rename(filepath.Join(dir, "z.bundle"), filepath.Join(dir, "z")); err != nil {
				t.Fatal(err)
			}
			ref, err := m.Resolve(t.Context(), r, gitref.Selector{})
			if err == nil {
				_, err = m.Fetch(t.Context(), r, ref)
			}
			gittest.ErrorIs(t, err, CommitNotFound)
			if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(dir, "link.bundle")), os.Mkdir(filepath.Join(dir, "dir.bundle"), 0o700),
				syscall.Mkfifo(filepath.Join(dir, "pipe.bundle"), 0o600)); err != nil { // which are no bundles
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "z"), filepath.Join(dir, "z.bundle")); err != nil {
				t.Fatal(err)
			}
			if ref, _ := syncRef(t, m, r, "main"); ref.Hash != tip {
				t.Errorf("%+v, want %s", ref, tip)
			}
			if got := content(t, m, r, tip, ""); got["x"] != "a" {
				t.Errorf("%q", got)
			}
			fsck(t, m, r)
		})
	}
}

// TestBundleTie: of bundles whose commits are of one second the one that contains the other counts,
// also when that is copied again, with a warning.
func TestBundleTie(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dir := t.TempDir()
	m := openMirrors(t, Options{AllowLocal: []string{dir}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r := Remote{URL: "bundle://" + dir}
	o := gittest.NewOrigin(t, t.TempDir(), "x.git")
	write := func(name string) {
		t.Helper()
		o.Git("bundle", "create", "-q", filepath.Join(dir, name), "main")
	}
	o.Commit("one", map[string]string{"a": "1"})
	write("z.bundle")
	syncRef(t, m, r, "main")
	second := o.Commit("two", map[string]string{"a": "2"})
	write("b.bundle")
	if ref, _ := syncRef(t, m, r, "main"); ref.Hash != second {
		t.Fatalf("%+v, want %s", ref, second)
	}
	o.Git("checkout", "-q", "-B", "main", "HEAD~1")
	if err := os.Remove(filepath.Join(dir, "z.bundle")); err != nil {
		t.Fatal(err)
	}
	write("new.bundle")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "new.bundle"), later, later); err != nil {
		t.Fatal(err)
	}
	if ref, _ := syncRef(t, m, r, "main"); ref.Hash != second || !strings.Contains(log.String(), "file=new.bundle newer=b.bundle") {
		t.Errorf("%+v, want %s; the log is\n%s", ref, second, &log)
	}
}

// TestBundlesWithManyRefs: of the bundles of a directory no refs stay in memory, also of one that
// is not valid. More than the tips and bases that are kept is refused.
func TestBundlesWithManyRefs(t *testing.T) {
	o, files := history(t, 1)
	parent, origin := openMirrors(t, Options{AllowLocal: []string{filepath.Dir(o.Bare)}}), Remote{URL: "file://" + o.Bare}
	child, remote, dir := bundleDir(t)
	const refs = 20_000
	last, since := "", ""
	for i := range 5 {
		files["n"] = fmt.Sprint(i)
		o.Commit(fmt.Sprint("commit ", i), files)
		ref, _ := syncRef(t, parent, origin, "main")
		file := filepath.Join(dir, fmt.Sprint(i, ".bundle"))
		export(t, parent, origin, BundleQuery{Ref: ref, Since: since}, file)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		end := bytes.Index(data, []byte("\n\nPACK")) + 1
		var more bytes.Buffer
		for n := range refs {
			fmt.Fprintf(&more, "%040x refs/heads/z%d\n", n+1, n)
		}
		if i == 4 { // copied again, and not whole
			half := slices.Concat(data[:end], more.Bytes(), data[end:len(data)-1])
			if err := os.WriteFile(filepath.Join(dir, "half.bundle"), half, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, slices.Concat(data[:end], more.Bytes(), data[end:]), 0o600); err != nil {
			t.Fatal(err)
		}
		last, since = ref.Hash, ref.Hash
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	got, _ := syncRef(t, child, remote, "main")
	if got.Hash != last {
		t.Errorf("%s, want %s", got.Hash, last)
	}
	kept := int64(used()-before) / refs
	t.Logf("%d bytes for each ref", kept)
	if kept > 100 { // the ids of 10,000 refs of each of the 5, and what the mirror takes
		t.Errorf("%d bytes are kept for each ref of 5 bundles", kept)
	}
	var bases bytes.Buffer
	bases.WriteString("# v2 git bundle\n")
	for n := range 500_000 {
		fmt.Fprintf(&bases, "-%040x\n", n+1)
	}
	data, err := os.ReadFile(filepath.Join(dir, "0.bundle"))
	if err != nil {
		t.Fatal(err)
	}
	bases.Write(data[bytes.IndexByte(data, '\n')+1:])
	if err := os.WriteFile(filepath.Join(dir, "bases.bundle"), bases.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = child.Resolve(t.Context(), remote, gitref.Selector{})
	gittest.ErrorIs(t, err, TooLarge)
}

// TestBundleForBigMirror: a mirror that has grown beyond its bound and cannot be started afresh
// from a bundle that builds on it stays.
func TestBundleForBigMirror(t *testing.T) {
	t.Parallel()
	o, files := history(t, 2)
	m, r, dir := bundleDir(t)
	o.Git("bundle", "create", "-q", filepath.Join(dir, "x.bundle"), "main")
	first, _ := syncRef(t, m, r, "main")
	if err := writeNote(m.dirOf(r), note{Format: layoutFormat, URL: r.URL, First: -growthFree / growthFactor}); err != nil {
		t.Fatal(err)
	}
	files["README.md"] = "next"
	next := o.Commit("next", files)
	o.Git("bundle", "create", "-q", filepath.Join(dir, "x.bundle"), first.Hash+"..main")
	if ref, _ := syncRef(t, m, r, "main"); ref.Hash != next {
		t.Errorf("%+v, want %s", ref, next)
	}
	fsck(t, m, r)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.WriteFile(to, gittest.Must[[]byte](t)(os.ReadFile(from)), 0o644); err != nil {
		t.Fatal(err)
	}
}
