package artifact_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/testenv/suite"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(m.Run())
}

// site is a state file and a directory of artifacts.
type site struct {
	t     testing.TB
	dir   string
	store *state.Store
}

func newSite(t testing.TB) *site {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &site{t, filepath.Join(t.TempDir(), "artifacts"), store}
}

func (s *site) open(o artifact.Options) *artifact.Store {
	s.t.Helper()
	o.Dir, o.Store, o.Logger, o.URL = s.dir, s.store, slog.New(slog.DiscardHandler), "http://limpet:9090/"
	a, err := artifact.Open(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// files are those below the directory.
func (s *site) files() (names []string) {
	_ = filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(s.dir, path)
			names = append(names, rel)
		}
		return err
	})
	return names
}

func digestOf(data string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(data))) }

// revision is one of a branch; its commit is made of n.
func revision(n int) string { return fmt.Sprintf("main@sha1:%040x", n) }

func put(s *artifact.Store, name, revision, data string) (artifact.Artifact, error) {
	return s.Put(context.Background(), artifact.Artifact{Kind: "gitrepository", Namespace: "flux-system", Name: name, UID: "1", Revision: revision},
		func(w io.Writer) (archive.Digests, error) {
			_, err := io.WriteString(w, data)
			return archive.Digests{Digest: digestOf(data), TarDigest: digestOf("tar" + data), Size: int64(len(data)), Files: 1}, err
		})
}

func (s *site) put(a *artifact.Store, name, revision, data string) artifact.Artifact {
	s.t.Helper()
	got, err := put(a, name, revision, data)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// content is what is served of an artifact.
func content(s *artifact.Store, a artifact.Artifact) (string, error) {
	f, err := s.OpenFile(context.Background(), a)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	return string(data), err
}

// TestFind: all keys of an artifact find it, and nothing else does.
func of(name string) artifact.Key {
	return artifact.Key{Kind: "gitrepository", Namespace: "flux-system", Name: name}
}

func TestFind(t *testing.T) {
	t.Parallel()
	w := newSite(t)
	s := w.open(artifact.Options{})
	tag := w.put(s, "site", fmt.Sprintf("v1.0.0@sha1:%040x", 1), "one")
	slash := w.put(s, "site", fmt.Sprintf("feature/a@sha1:%040x", 2), "two")
	again := w.put(s, "site", fmt.Sprintf("feature/a@sha1:%040x", 2), "two with other rules")
	pin := w.put(s, "site", fmt.Sprintf("sha1:%040x", 3), "three")
	if want := "gitrepository/flux-system/site/" + fmt.Sprintf("%040x", 3) + ".tar.gz"; pin.Path != want || s.URL(pin) != "http://limpet:9090/"+want {
		t.Errorf("%s, %s", pin.Path, s.URL(pin))
	}
	for key, want := range map[string]artifact.Artifact{
		"latest": pin, fmt.Sprintf("%040x", 1): tag, "v1.0.0": tag, "feature/a": again, fmt.Sprintf("%040x", 2): again, slash.Digest: slash,
		slash.Digest[7:]: slash, pin.Updated.Format(time.RFC3339): pin, "99999999999": pin, pin.Updated.Add(-time.Hour).Format(time.RFC3339): {},
		"": {}, "v1": {}, "main": {}, "sha256:": {}, "..": {}, "0": {},
	} {
		got, err := s.Find(t.Context(), of("site"), key)
		if (err == nil) != (want.Digest != "") || err != nil && !errors.Is(err, artifact.ErrNotFound) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %+v, want %+v", key, err, got, want)
		}
	}
	for _, a := range []artifact.Artifact{tag, slash, again, pin} {
		if data, err := content(s, a); err != nil || digestOf(data) != a.Digest {
			t.Errorf("%s: %q, %v", a.Revision, data, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "../x"} {
		if _, err := put(s, name, revision(1), ""); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
	if err := s.Remove(t.Context(), of("site")); err != nil || len(w.files()) > 0 {
		t.Errorf("after the removal: %v, %q", err, w.files())
	}
	if err := s.Remove(t.Context(), of("none")); err != nil {
		t.Error(err)
	}
}

// TestRetention: so many revisions stay, none that is too old, and the newest always.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := newSite(t)
	s := w.open(artifact.Options{Keep: 3, MaxAge: time.Hour})
	for n := range 5 {
		w.put(s, "site", revision(n), fmt.Sprint(n))
	}
	w.put(s, "site", revision(3), "3")
	w.put(s, "same", revision(1), "same bytes")
	w.put(s, "same", revision(2), "same bytes")
	revisions := func(name string) (out []string) {
		list, err := s.List(t.Context(), of(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			if data, err := content(s, a); err != nil || digestOf(data) != a.Digest {
				t.Errorf("%s: %q, %v", a.Revision, data, err)
			}
			out = append(out, a.Revision)
		}
		return out
	}
	if got := revisions("site"); !slices.Equal(got, []string{revision(3), revision(4), revision(2)}) || len(w.files()) != 4 {
		t.Errorf("%q, %q", got, w.files())
	}
	if got := revisions("same"); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if err := s.Prune(t.Context(), time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := revisions("site"); !slices.Equal(got, []string{revision(3)}) || len(revisions("same")) != 1 || len(w.files()) != 2 {
		t.Errorf("of age: %q, %q", got, w.files())
	}
	_, err := s.Put(t.Context(), artifact.Artifact{Kind: "gitrepository", Namespace: "flux-system", Name: "site", UID: "another", Revision: revision(9)},
		func(io.Writer) (archive.Digests, error) { return archive.Digests{Digest: digestOf("")}, nil })
	if got := revisions("site"); err != nil || !slices.Equal(got, []string{revision(9)}) {
		t.Errorf("of another object: %v, %q", err, got)
	}
}

// TestDamage: a file that is gone or has other bytes is not served, its source hears of it, and it
// is made anew.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := newSite(t)
	s := w.open(artifact.Options{})
	old := w.put(s, "site", revision(1), "old")
	a := w.put(s, "site", revision(2), "content")
	path := filepath.Join(w.dir, "gitrepository/flux-system/site", a.Digest[7:]+".tar.gz")
	for name, damage := range map[string]func() error{
		"other bytes": func() error { return os.WriteFile(path, []byte("CONTENT"), 0o600) },
		"a byte, with its time put back": func() error {
			info, err := os.Stat(path)
			return errors.Join(err, os.WriteFile(path, []byte("cOntent"), 0o600), os.Chtimes(path, info.ModTime(), info.ModTime()))
		},
		"cut":         func() error { return os.Truncate(path, 3) },
		"gone":        func() error { return os.Remove(path) },
		"a link":      func() error { return errors.Join(os.Remove(path), os.Symlink("/etc/hostname", path)) },
		"a directory": func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if data, err := content(s, a); err == nil {
			t.Errorf("%s: %q is served", name, data)
		}
		if s.Verify(t.Context(), a) == nil {
			t.Errorf("%s: right", name)
		}
		if name != "a link" { // which cannot be opened at all
			select {
			case lost := <-s.Lost():
				if !reflect.DeepEqual(lost, a) {
					t.Errorf("%s: lost %+v", name, lost)
				}
			default:
				t.Errorf("%s: nothing is told of it", name)
			}
		}
		if data, err := content(s, old); err != nil || data != "old" {
			t.Errorf("%s: the one before: %q, %v", name, data, err)
		}
		_ = os.Remove(path)
		if again := w.put(s, "site", revision(2), "content"); again.Digest != a.Digest {
			t.Errorf("%s: %+v", name, again)
		}
		a = first(t, s)
		if data, err := content(s, a); err != nil || data != "content" {
			t.Errorf("%s: after it was made anew: %q, %v", name, data, err)
		}
		for len(s.Lost()) > 0 {
			<-s.Lost()
		}
	}
	// What is damaged while no process runs is found at the first look, what is gone at the start.
	gone := w.put(s, "other", revision(1), "gone")
	if err := errors.Join(os.WriteFile(path, []byte("CONTENT"), 0o600),
		os.Remove(filepath.Join(w.dir, "gitrepository/flux-system/other", gone.Digest[7:]+".tar.gz"))); err != nil {
		t.Fatal(err)
	}
	s = w.open(artifact.Options{})
	if list, err := s.List(t.Context(), of("other")); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := content(s, a); !isCorrupt(err) {
		t.Errorf("served after a start: %v", err)
	}
	if w.open(artifact.Options{}); len(w.files()) != 1 {
		t.Errorf("files: %q", w.files())
	}
}

// TestLinked: behind a link there may be files of others. They stay, and old revisions go all the
// same.
func TestLinked(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "gitrepository", "gitrepository/flux-system/site"} {
		w := newSite(t)
		there := t.TempDir()
		rest, _ := filepath.Rel(at, "gitrepository/flux-system/site")
		if at == "" {
			rest = "gitrepository/flux-system/site"
		}
		foreign := filepath.Join(there, rest, digestOf("foreign")[7:]+".tar.gz")
		link := filepath.Join(w.dir, at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(foreign), 0o700), os.WriteFile(foreign, nil, 0o600),
			os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(there, link)); err != nil {
			t.Fatal(err)
		}
		s := w.open(artifact.Options{Keep: 1})
		w.put(s, "site", revision(1), "old")
		w.put(s, "site", revision(2), "new")
		if s.Remove(t.Context(), of("none")) != nil {
			t.Error("a source without artifacts cannot be removed")
		}
		for _, left := range []string{".limpet-x-1.tmp", digestOf("bad")[7:] + ".tar.gz.corrupt"} { // by a crash
			if err := os.WriteFile(filepath.Join(filepath.Dir(foreign), left), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w.open(artifact.Options{Keep: 1})
		entries, err := os.ReadDir(filepath.Dir(foreign))
		if _, gone := os.Stat(foreign); err != nil || gone != nil || len(entries) != 2 {
			t.Errorf("link at %q: %v, %v, %v", at, entries, err, gone)
		}
	}
}

// TestAway: a start without the disk of the artifacts, or one that may not read it, takes nothing
// from the next start.
func TestAway(t *testing.T) {
	t.Parallel()
	w := newSite(t)
	a := w.put(w.open(artifact.Options{}), "site", revision(1), "one")
	dir := filepath.Join(w.dir, "gitrepository/flux-system/site")
	for name, step := range map[string][2]func() error{
		"not mounted": {func() error { return os.Rename(w.dir, w.dir+".away") },
			func() error { return errors.Join(os.RemoveAll(w.dir), os.Rename(w.dir+".away", w.dir)) }},
		"no directory": {func() error { return errors.Join(os.Rename(dir, w.dir+".away"), os.WriteFile(dir, nil, 0o600)) },
			func() error { return errors.Join(os.Remove(dir), os.Rename(w.dir+".away", dir)) }},
	} {
		if err := step[0](); err != nil {
			t.Fatal(err)
		}
		w.open(artifact.Options{})
		if err := step[1](); err != nil {
			t.Fatal(err)
		}
		if s := w.open(artifact.Options{}); !reflect.DeepEqual(first(t, s), a) || s.Verify(t.Context(), a) != nil {
			t.Errorf("%s: files %q", name, w.files())
		}
	}
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*artifact.CorruptError](err)
	return ok
}

func first(t *testing.T, s *artifact.Store) artifact.Artifact {
	t.Helper()
	a, err := s.Latest(t.Context(), of("site"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestErrors: what fails leaves what was there.
func TestErrors(t *testing.T) {
	const inChild = "LIMPET_TEST_FULL_DISK" // a limit of file sizes holds for the process: EFBIG in place of ENOSPC
	if os.Getenv(inChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestErrors$", "-test.v")
		cmd.Env = append(os.Environ(), inChild+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestErrors")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	w := newSite(t)
	s := w.open(artifact.Options{})
	old := w.put(s, "site", revision(1), "old")
	own := errors.New("own")
	if _, err := s.Put(t.Context(), artifact.Artifact{Kind: "gitrepository", Namespace: "flux-system", Name: "site", Revision: revision(2)},
		func(w io.Writer) (archive.Digests, error) {
			_, _ = io.WriteString(w, "x")
			return archive.Digests{}, own
		}); !errors.Is(err, own) {
		t.Errorf("its own error: %v", err)
	}
	limit := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = 8 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	_, err := put(s, "site", revision(2), strings.Repeat("long", 10_000))
	if e, ok := errors.AsType[*artifact.Error](err); !ok || e.Reason != artifact.ReasonArchive || !errors.Is(err, syscall.EFBIG) {
		t.Errorf("a full disk: %v", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if got := first(t, s); !reflect.DeepEqual(got, old) || len(w.files()) != 1 {
		t.Errorf("%+v, %q", got, w.files())
	}
	if data, err := content(s, old); err != nil || data != "old" {
		t.Errorf("%q, %v", data, err)
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := put(s, "site", revision(3), "three"); !errors.As(err, new(*artifact.Error)) {
		t.Errorf("without an index: %v", err)
	}
}

// TestPutFile: a file becomes an artifact without a copy, and stays where it is until the index has it.
func TestPutFile(t *testing.T) {
	t.Parallel()
	w := newSite(t)
	s := w.open(artifact.Options{})
	file := filepath.Join(t.TempDir(), "layer")
	if err := os.WriteFile(file, []byte("layer"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	a := artifact.Artifact{Kind: "gitrepository", Namespace: "flux-system", Name: "site", UID: "1", Revision: revision(1)}
	d := archive.Digests{Digest: digestOf("layer"), Size: 5, Files: 1}
	power := errors.New("the power is gone")
	for _, cut := range []string{"rename", "sync", "index"} {
		s.Step(func(name string) error {
			if name == cut {
				return power
			}
			return nil
		})
		if _, err := s.PutFile(t.Context(), a, file, d); !errors.Is(err, power) {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(file); string(data) != "layer" {
			t.Errorf("cut at %s: %q, %v", cut, data, err)
		}
		if s = w.open(artifact.Options{}); len(w.files()) > 0 {
			t.Errorf("cut at %s: %q", cut, w.files())
		}
	}
	wrong := d
	wrong.Size = 4
	if _, err := s.PutFile(t.Context(), a, file, wrong); err == nil {
		t.Error("a file of another size is stored")
	}
	made, err := s.PutFile(t.Context(), a, file, d)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := s.OpenFile(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	after, err := stored.Stat()
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("it was copied: %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its old name: %v", err)
	}
}

// TestPowerCuts: at whatever step of a Put the power goes, and whatever of what was not synced is
// gone then, a start finds each artifact of the index with its bytes, no other file, and the newest
// that a Put has returned.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(suite.Seed(t), 0))
	w := newSite(t)
	s := w.open(artifact.Options{Keep: 3})
	dir := filepath.Join(w.dir, "gitrepository", "flux-system", "site")
	power := errors.New("the power is gone")
	last := w.put(s, "site", revision(0), "0")
	steps := []string{"write", "rename", "sync", "index", "tidy", "none"}
	for n := range suite.Count(200, 10_000) {
		cut := steps[rng.IntN(len(steps))]
		s.Step(func(name string) error {
			if name == cut {
				return power
			}
			return nil
		})
		before, data := w.files(), strings.Repeat(fmt.Sprint(n/2), 1+rng.IntN(50)) // now and then the bytes of an old one
		a, err := s.Put(t.Context(), artifact.Artifact{Kind: "gitrepository", Namespace: "flux-system", Name: "site", UID: "1", Revision: revision(n)},
			func(w io.Writer) (archive.Digests, error) {
				if cut == "write" {
					_, _ = io.WriteString(w, data[:rng.IntN(len(data))])
					return archive.Digests{}, power
				}
				_, err := io.WriteString(w, data)
				return archive.Digests{Digest: digestOf(data), Size: int64(len(data))}, err
			})
		if (cut == "none") != (err == nil) || err != nil && !errors.Is(err, power) {
			t.Fatalf("cut at %s: %v", cut, err)
		}
		// What a killed process leaves: its temporary file. A rename that was not synced may not have
		// been.
		temp := filepath.Join(dir, fmt.Sprintf(".limpet-artifact-%d.tmp", n))
		name := digestOf(data)[7:] + ".tar.gz"
		switch {
		case cut == "write", cut == "rename":
			err = os.WriteFile(temp, []byte(data[:rng.IntN(len(data)+1)]), 0o600)
		case cut == "sync" && rng.IntN(2) == 0 && !slices.Contains(before, filepath.Join("gitrepository", "flux-system", "site", name)):
			err = os.Rename(filepath.Join(dir, name), temp)
		case cut == "tidy":
			a, err = s.Latest(t.Context(), of("site"))
		default:
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if cut == "none" || cut == "tidy" {
			last = a
		}
		s = w.open(artifact.Options{Keep: 3})
		list, err := s.List(t.Context(), of("site"))
		if err != nil || len(list) == 0 || !reflect.DeepEqual(list[0], last) {
			t.Fatalf("cut %d at %s: %v, %+v, want first %+v", n, cut, err, list, last)
		}
		want := map[string]bool{}
		for _, a := range list {
			if data, err := content(s, a); err != nil || digestOf(data) != a.Digest {
				t.Fatalf("cut %d at %s: %q, %v", n, cut, data, err)
			}
			want[a.Digest] = true
		}
		if files := w.files(); len(files) != len(want) {
			t.Fatalf("cut %d at %s: files %q, want %d", n, cut, files, len(want))
		}
	}
}
