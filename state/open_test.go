package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"limpet/state/frame"
	"limpet/state/repair"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if _, _, err := Open(ctx, Options{}); err == nil {
		t.Error("no path was taken")
	}
	if _, _, err := Open(ctx, Options{Path: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory as state: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, _, err := Open(ctx, Options{Path: filepath.Join(file, "limpet.db")}); err == nil {
		t.Error("a directory that is a file was taken")
	}
}

// TestForeignFile: a sound file of another program is neither used nor moved.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
	must(t, errors.Join(err, db.Close()))
	before, err := os.ReadFile(path)
	must(t, err)
	if _, _, err := Open(context.Background(), Options{Path: path}); !errors.Is(err, ErrForeign) {
		t.Errorf("error %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, before) {
		t.Errorf("the file was changed, %v", err)
	}
	if names := beside(t, path); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

// beside lists the files whose names begin with that of the state file, without its reserve.
func beside(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(globQuote(path) + ".*")
	must(t, err)
	for i, n := range names {
		names[i] = strings.TrimPrefix(n, path)
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == reserve })
}

func TestPermissionsAreRepaired(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "limpet.db")
	s := opened(t, Options{Path: path})
	Closed(t, s)
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, %v", info.Mode(), err)
	}
	must(t, os.Chmod(path, 0o666))
	opened(t, Options{Path: path})
	for _, name := range []string{path, path + ".owner"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
}

// TestLinkIsFollowed: what replaces the file must not replace the link to it.
func TestLinkIsFollowed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	real, link := filepath.Join(t.TempDir(), "real.db"), filepath.Join(t.TempDir(), "limpet.db")
	Closed(t, opened(t, Options{Path: real}))
	must(t, os.Symlink(real, link))
	s := opened(t, Options{Path: link})
	must(t, s.PutFact(ctx, "large", make([]byte, 4<<20)))
	must(t, s.PutFact(ctx, "large", nil))
	if before, after, err := s.Compact(ctx); err != nil || after >= before {
		t.Fatalf("compact: %d -> %d, %v", before, after, err)
	}
	if before, after, err := s.Compact(ctx); err != nil || after != before {
		t.Errorf("compact again: %d -> %d, %v", before, after, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info.Mode(), err)
	}
}

// TestHeldBy: asking who has the file open changes nothing, neither for the holder nor for the
// process that comes next.
func TestHeldBy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	held := func() *LockedError {
		t.Helper()
		l, err := HeldBy(path)
		must(t, err)
		return l
	}
	if l := held(); l != nil {
		t.Errorf("a file that is not there is held by %+v", l)
	}
	s := opened(t, Options{Path: path, Version: "v1.2.3", Socket: "/run/limpet.sock"})
	for range 2 {
		if l := held(); l == nil || l.PID != os.Getpid() || l.Version != "v1.2.3" || l.Socket != "/run/limpet.sock" || l.Path != path {
			t.Errorf("held by %+v", l)
		}
	}
	Closed(t, s)
	if l := held(); l != nil {
		t.Errorf("a closed file is held by %+v", l)
	}
	if _, err := os.Stat(path + ".owner"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("asking has made an owner file: %v", err)
	}
	// The mark of a process that died stays, and holds nobody up.
	must(t, os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
	if l := held(); l != nil {
		t.Errorf("a file whose owner died is held by %+v", l)
	}
	s, report, err := Open(context.Background(), Options{Path: path, probe: func(context.Context, string) error { return nil }})
	must(t, err)
	if !report.Unclean {
		t.Errorf("the mark is gone: %+v", report)
	}
	Closed(t, s)
}

// TestAgentWaitsForCommand: a start waits longer for a command that has the file than a command
// does, and no longer than that for another agent.
func TestAgentWaitsForCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	command := opened(t, Options{Path: path})
	if _, _, err := Open(t.Context(), Options{Path: path}); !errors.As(err, new(*LockedError)) {
		t.Fatalf("a command beside another one: %v", err)
	}
	agent := make(chan *Store)
	go func() {
		s, _, err := Open(t.Context(), Options{Path: path, Socket: "/run/limpet.sock"})
		if err != nil {
			t.Error(err)
		}
		agent <- s
	}()
	select {
	case <-agent:
		t.Fatal("an agent has opened a file that a command holds, or has given up")
	case <-time.After(2 * lockWait):
	}
	Closed(t, command)
	s := <-agent
	if _, _, err := Open(t.Context(), Options{Path: path, Socket: "/run/other.sock"}); !errors.As(err, new(*LockedError)) {
		t.Errorf("an agent beside another one: %v", err)
	}
	Closed(t, s)
}

// TestLockedByAnotherProgram: bbolt's own lock counts too.
func TestLockedByAnotherProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	Closed(t, opened(t, Options{Path: path}))
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	_, _, err = Open(context.Background(), Options{Path: path})
	if !errors.As(err, new(*LockedError)) {
		t.Errorf("error %v", err)
	}
	must(t, db.Close())
	opened(t, Options{Path: path})
}

// TestOwnerFile: the mark of an unclean stop outlives failed starts and goes with a clean close.
func TestOwnerFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	Closed(t, opened(t, Options{Path: path}))
	if names := beside(t, path); len(names) > 0 {
		t.Errorf("a clean close left %v", names)
	}
	for _, note := range []string{`{"pid":1}`, "{", strings.Repeat("x", 1000)} {
		must(t, os.WriteFile(path+".owner", []byte(note), 0o600))
		cause := errors.New("disk is gone")
		_, r, err := Open(context.Background(), Options{Path: path, probe: func(context.Context, string) error { return cause }})
		if !errors.Is(err, cause) || !r.Unclean {
			t.Errorf("report %+v, error %v", r, err)
		}
		s, r := reopened(t, Options{Path: path})
		if !r.Unclean || r.Quarantined != "" {
			t.Errorf("report %+v", r)
		}
		if text, err := os.ReadFile(path + ".owner"); err != nil || strings.Count(string(text), "\n") != 1 {
			t.Errorf("owner file %q, %v", text, err)
		}
		Closed(t, s)
	}
	s, r := reopened(t, Options{Path: path})
	if r.Unclean {
		t.Errorf("report after a clean close: %+v", r)
	}
	Closed(t, s)
}

// TestCopyIsVerified: a file without the seal of a clean close is verified even when nothing says
// that it was unclean.
func TestCopyIsVerified(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, Options{Path: path})
	must(t, s.PutFact(ctx, "k", []byte("v")))
	backup, err := os.Create(path + "2")
	must(t, err)
	if _, err := s.Backup(ctx, backup); err != nil {
		t.Fatal(err)
	}
	must(t, backup.Close())
	probed := 0
	probe := func(ctx context.Context, path string) error {
		probed++
		return repair.Check(ctx, path, current.version)
	}
	s2, r := reopened(t, Options{Path: path + "2", probe: probe})
	if r.Unclean || probed != 1 {
		t.Errorf("report %+v, %d probes", r, probed)
	}
	if v, err := s2.Fact(ctx, "k"); err != nil || string(v) != "v" {
		t.Errorf("fact %q, %v", v, err)
	}
	Closed(t, s2)
	if _, r = reopened(t, Options{Path: path + "2", probe: probe}); probed != 1 {
		t.Errorf("a clean close was followed by a probe: %+v", r)
	}
}

// TestInterruptedRebuild: a crash between the renames of a rebuild is mended, one before them
// leaves nothing behind.
func TestInterruptedRebuild(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, Options{Path: path})
	must(t, s.PutFact(ctx, "k", []byte("v")))
	Closed(t, s)
	for _, suffix := range []string{suffixBuilding, suffixCompacting} {
		must(t, os.WriteFile(path+suffix, []byte("half"), 0o600))
	}
	must(t, os.Rename(path, path+suffixRebuilt))
	s, r := reopened(t, Options{Path: path})
	if v, err := s.Fact(ctx, "k"); err != nil || string(v) != "v" || r.Created {
		t.Errorf("fact %q, %v, report %+v", v, err, r)
	}
	if names := beside(t, path); !slices.Equal(names, []string{".owner"}) {
		t.Errorf("left %v", names)
	}
	Closed(t, s)
	must(t, os.WriteFile(path+suffixRebuilt, []byte("superfluous"), 0o600))
	// Temporary files go when they are old: a backup may be under way.
	dir, hours := filepath.Dir(path), -2*staleAfter
	for name, age := range map[string]time.Duration{
		".limpet-limpet.db.key-1.tmp": hours, ".limpet-backup.db-1.tmp": hours, ".limpet-backup.db-2.tmp": 0,
		"backup.db": hours, ".limpet-notes": hours, ".limpet-site-1": hours, ".limpet-d-3.tmp": hours,
	} {
		if name == ".limpet-d-3.tmp" {
			must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		} else {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		must(t, os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Now().Add(age)))
	}
	s = opened(t, Options{Path: path})
	for _, name := range []string{".limpet-backup.db-2.tmp", "backup.db", ".limpet-notes", ".limpet-site-1", ".limpet-d-3.tmp"} {
		_, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
	}
	if old, err := filepath.Glob(filepath.Join(dir, ".limpet-*-1.tmp")); err != nil || len(old) > 0 {
		t.Errorf("left %v, %v", old, err)
	}
	if v, err := s.Fact(ctx, "k"); err != nil || string(v) != "v" {
		t.Errorf("fact %q, %v", v, err)
	}
	if names := beside(t, path); !slices.Equal(names, []string{".owner"}) {
		t.Errorf("left %v", names)
	}
}

// TestStateFileNamedLikeATemporaryFile: its name begins like theirs, and it stays however old it
// is.
func TestStateFileNamedLikeATemporaryFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), ".limpet-site.db")
	s := opened(t, Options{Path: path})
	must(t, s.PutSecret(t.Context(), "token", []byte("hunter2")))
	Closed(t, s)
	long := time.Now().Add(-2 * staleAfter)
	for _, name := range []string{path, path + ".key"} {
		must(t, os.Chtimes(name, long, long))
	}
	s, r := reopened(t, Options{Path: path})
	if plain, err := s.Secret(t.Context(), "token"); err != nil || string(plain) != "hunter2" || r.Created {
		t.Errorf("secret %q, %v, report %+v", plain, err, r)
	}
}

// TestRebuildEndsWithItsContext: also where no record is found that could be copied. The damaged
// file stays as it is.
func TestRebuildEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	garbage := bytes.Repeat([]byte{0xff}, 64<<10)
	must(t, os.WriteFile(path, garbage, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	probe := func(context.Context, string) error {
		cancel()
		return ErrCorrupt
	}
	s, r, err := Open(ctx, Options{Path: path, probe: probe})
	if err == nil {
		Closed(t, s)
	}
	if !errors.Is(err, context.Canceled) || r.Quarantined != "" {
		t.Errorf("report %+v, error %v", r, err)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, garbage) {
		t.Errorf("the file was changed, %v", err)
	}
}

// TestFailedRebuildMovesNothing: where the new file cannot be put in its place, the damaged one
// stays in its own.
func TestFailedRebuildMovesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	garbage := bytes.Repeat([]byte{0xff}, 64<<10)
	must(t, os.WriteFile(path, garbage, 0o600))
	probe := func(context.Context, string) error {
		must(t, os.MkdirAll(filepath.Join(path+suffixRebuilt, "occupied"), 0o700))
		return ErrCorrupt
	}
	if _, r, err := Open(t.Context(), Options{Path: path, probe: probe}); err == nil || r.Quarantined != "" {
		t.Errorf("report %+v, error %v", r, err)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, garbage) {
		t.Errorf("the file was changed, %v", err)
	}
}

// TestEmptyFiles: what a crash leaves before the first transaction is used as a new file.
func TestEmptyFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"no bytes", "no buckets"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "limpet.db")
			if name == "no bytes" {
				must(t, os.WriteFile(path, nil, 0o600))
			} else {
				db, err := bbolt.Open(path, 0o600, nil)
				must(t, err)
				must(t, db.Close())
			}
			must(t, os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
			s, r := reopened(t, Options{Path: path})
			if r.Quarantined != "" || !r.Created || !r.Unclean {
				t.Errorf("report %+v", r)
			}
			if err := s.PutFact(context.Background(), "k", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRevisionNeverGoesBack: neither by a rebuild from nothing nor by a clock that stands in the
// past.
func TestRevisionNeverGoesBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, Options{Path: path})
	ahead := uint64(time.Now().Add(1000 * time.Hour).UnixMicro())
	err := s.write(ctx, func(t *txn) error {
		t.m.Revision = ahead
		return t.put(frame.Facts, []byte("k"), nil)
	})
	must(t, err)
	if _, err := s.Mutate(ctx, ObjectKey{"g/jobs", "", "a"}, put("{}")); err != nil {
		t.Fatal(err)
	}
	Closed(t, s)
	data, err := os.ReadFile(path)
	must(t, err)
	clear(data[:8192])
	must(t, os.WriteFile(path, data, 0o600))
	damaged := time.Now()
	s, r := reopened(t, Options{Path: path})
	if i := infoOf(t, s); i.Revision < ahead+1 || r.Quarantined == "" || i.Created.Before(damaged) {
		t.Errorf("revision %d after %d, made at %s, report %+v", i.Revision, ahead+1, i.Created, r)
	}
}

// TestOldDamagedFilesGo keeps a dying disk from filling itself.
func TestOldDamagedFilesGo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "li[m]pet.db")
	for range maxCorruptFiles + 2 {
		must(t, os.WriteFile(path, []byte("garbage\x00that is no state"), 0o600))
		s, r := reopened(t, Options{Path: path})
		if r.Quarantined == "" || r.Lost == 0 {
			t.Errorf("report %+v", r)
		}
		Closed(t, s)
	}
	if names := beside(t, path); len(names) != maxCorruptFiles {
		t.Errorf("left %v", names)
	}
}

// TestTextIsNoStateFile: a person's text is refused as it is, with nothing beside it. What
// an owner has left its mark on was a state file, whatever is in it now.
func TestTextIsNoStateFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data   string
		name   string
		owned  bool
		refuse bool
	}{
		"a note":                  {"milk\nbread\n", "", false, true},
		"a byte":                  {"x", "", false, true},
		"a character at the edge": {strings.Repeat("x", 4<<10-1) + strings.Repeat("漢", 9), "", false, true},
		"a long one":              {strings.Repeat("線は切れる\n", 10_000), "", false, true},
		"text after zeros":        {"milk\x00bread\n", "", false, false},
		"no text":                 {strings.Repeat("\xff\xfe", 100), "", false, false},
		"text that was a state":   {"milk\nbread\n", "", true, false},
		"text named as a state":   {"milk\nbread\n", "limpet.db", false, false},
	} {
		path := filepath.Join(t.TempDir(), cmp.Or(c.name, "notes.txt"))
		must(t, os.WriteFile(path, []byte(c.data), 0o644))
		if c.owned {
			must(t, os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
		}
		s, r, err := Open(t.Context(), Options{Path: path})
		if !c.refuse {
			if err != nil || r.Quarantined == "" || r.Damage == "" {
				t.Fatalf("%s: %v, %+v", name, err, r)
			}
			Closed(t, s)
			continue
		}
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), path) {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		left, _ := os.ReadDir(filepath.Dir(path))
		if err != nil || string(data) != c.data || info.Mode().Perm() != 0o644 || len(left) != 1 {
			t.Errorf("%s: %v, mode %s, %v beside it", name, err, info.Mode(), left)
		}
	}
}
