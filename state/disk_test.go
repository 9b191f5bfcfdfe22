package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Full and read-only disks are small memory file systems in a mount namespace of a child process.
// Where the system does not allow one, the full disk becomes a limit on the size of the child's
// files, and the read-only one a directory without write permission.

// childHere runs the parts of these tests that need a process of their own.
func childHere(mode, dir string) error {
	switch mode {
	case "full-mounted":
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m,mode=0700"); err != nil {
			return errNoMount(err)
		}
		return fullDisk(dir, syscall.ENOSPC, func() error { return nil })
	case "full-limited":
		ossignal.Ignore(syscall.SIGXFSZ)
		limit := syscall.Rlimit{Cur: 2 << 20, Max: 100 << 20}
		relieve := func() error {
			limit.Cur += 1 << 20
			return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
		}
		return errors.Join(relieve(), fullDisk(dir, syscall.EFBIG, relieve))
	case "readonly-mounted":
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700"); err != nil {
			return errNoMount(err)
		}
		return readOnlyDisk(dir, func(on bool) error {
			flags := uintptr(syscall.MS_REMOUNT)
			if on {
				flags |= syscall.MS_RDONLY
			}
			return syscall.Mount("tmpfs", dir, "tmpfs", flags, "")
		})
	case "readonly-mode":
		if err := becomeNobody(dir); err != nil {
			return err
		}
		return readOnlyDisk(dir, func(on bool) error {
			if on {
				return os.Chmod(dir, 0o500)
			}
			return os.Chmod(dir, 0o700)
		})
	}
	return fmt.Errorf("unknown child %q", mode)
}

// becomeNobody gives up the rights of root, who may write everywhere, and takes the directory
// along.
func becomeNobody(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	const nobody = 65534
	return errors.Join(os.Chown(dir, nobody, nobody), os.Chmod(filepath.Dir(dir), 0o711), syscall.Setgid(nobody), syscall.Setuid(nobody))
}

// noMount is the exit code of a child that was not allowed to mount.
const noMount = 77

func errNoMount(err error) error {
	fmt.Println(err)
	os.Exit(noMount)
	return nil
}

// onSmallDisk runs a child with a mount namespace, or its substitute without one.
func onSmallDisk(t *testing.T, mounted, instead string) {
	t.Helper()
	cmd := child(mounted, t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err == nil {
		return
	}
	if errors.As(err, &exit) && exit.ExitCode() != noMount {
		t.Fatalf("%s: %v\n%s", mounted, err, out)
	}
	t.Logf("no mount namespace here (%v), using %s", err, instead)
	cmd = child(instead, t.TempDir())
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%s: %v\n%s", instead, err, out)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	onSmallDisk(t, "full-mounted", "full-limited")
}

func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	onSmallDisk(t, "readonly-mounted", "readonly-mode")
}

// fullDisk fills the disk with history until the store refuses, and looks at what still works. full
// is the error of the system for a disk that is full; relieve makes space where the reserve is of no
// use.
func fullDisk(dir string, full syscall.Errno, relieve func() error) error {
	ctx := context.Background()
	path := filepath.Join(dir, "limpet.db")
	s, _, err := Open(ctx, Options{Path: path})
	if err != nil {
		return err
	}
	if err := s.PutClaim(ctx, Claim{UID: "held", Phase: PhaseHeld}); err != nil {
		return err
	}
	if full == syscall.ENOSPC {
		if err := filledByOthers(ctx, s, dir); err != nil {
			return err
		}
	}
	written := 0
	for cycle := range 5 {
		for err = nil; err == nil; written++ {
			if written > 10_000 {
				return errors.New("the disk does not get full")
			}
			err = s.PutRecord(ctx, Record{UID: fmt.Sprint("u", written), Message: strings.Repeat("x", 3000), Finished: noon})
		}
		if !errors.Is(err, full) {
			return fmt.Errorf("cycle %d: error of a full disk is %w", cycle, err)
		}
		if err := relieve(); err != nil {
			return err
		}
		if err := fullButAlive(ctx, s, written-1, cycle); err != nil {
			return fmt.Errorf("cycle %d: %w", cycle, err)
		}
	}
	if err := s.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	s, r, err := Open(ctx, Options{Path: path})
	if err != nil || r.Quarantined != "" || r.Unclean {
		return fmt.Errorf("reopen: %+v, %w", r, err)
	}
	return s.Close()
}

// fullButAlive: reads, prunes, deletes and then writes work while the disk is full.
func fullButAlive(ctx context.Context, s *Store, last, cycle int) error {
	if got, err := s.History(ctx, Query{UID: fmt.Sprint("u", last)}); err != nil || len(got) != 0 {
		return fmt.Errorf("refused record: %d, %w", len(got), err)
	}
	if got, err := s.History(ctx, Query{UID: fmt.Sprint("u", last-1)}); err != nil || len(got) != 1 {
		return fmt.Errorf("acknowledged record: %d, %w", len(got), err)
	}
	before, err := s.HistoryCount(ctx)
	if err != nil {
		return err
	}
	removed, err := s.TrimHistory(ctx, before/2)
	if err != nil || removed == 0 {
		return fmt.Errorf("trim %d of %d: %w", removed, before, err)
	}
	if err := s.PutMark(ctx, "held", fmt.Append(nil, cycle)); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if err := s.PutFact(ctx, "cycle", bytes.Repeat([]byte("x"), 10_000)); err != nil {
		return fmt.Errorf("write after the trim: %w", err)
	}
	r, err := s.Check(ctx)
	if err != nil || len(r.Problems) > 0 {
		return fmt.Errorf("check: %v, %w", r.Problems, err)
	}
	return nil
}

// filledByOthers: what somebody else's file takes, its removal gives back, without a restart.
func filledByOthers(ctx context.Context, s *Store, dir string) error {
	big := []byte(strings.Repeat("x", 900_000))
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	if err := s.PutSnapshot(ctx, "jobs", big); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("write on a full disk: %w", err)
	}
	if err := s.DiskError(ctx); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("error of a full disk: %w", err)
	}
	if err := s.Complete(ctx, "held", Record{Message: "ends", Finished: noon}); err != nil {
		return fmt.Errorf("end of a job on a full disk: %w", err)
	}
	if err := errors.Join(os.Remove(other), s.DiskError(ctx)); err != nil {
		return err
	}
	if err := s.PutSnapshot(ctx, "jobs", big); err != nil {
		return fmt.Errorf("write when there is space again: %w", err)
	}
	if _, _, err := s.Compact(ctx); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	return s.PutSnapshot(ctx, "jobs", nil)
}

// readOnlyDisk opens a state on a disk that turns read-only and back.
func readOnlyDisk(dir string, set func(on bool) error) error {
	ctx := context.Background()
	path := filepath.Join(dir, "limpet.db")
	s, _, err := Open(ctx, Options{Path: path})
	if err != nil {
		return err
	}
	if err := errors.Join(s.PutFact(ctx, "k", []byte("v")), s.Close(), set(true)); err != nil {
		return err
	}
	for _, p := range []string{path, filepath.Join(dir, "new.db"), filepath.Join(dir, "sub", "new.db")} {
		_, _, err := Open(ctx, Options{Path: p})
		if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), dir) {
			return fmt.Errorf("open of %s: %w", p, err)
		}
	}
	if err := set(false); err != nil {
		return err
	}
	s, r, err := Open(ctx, Options{Path: path})
	if err != nil || r.Unclean || r.Quarantined != "" {
		return fmt.Errorf("open after all: %+v, %w", r, err)
	}
	if v, err := s.Fact(ctx, "k"); err != nil || string(v) != "v" {
		return fmt.Errorf("fact %q, %w", v, err)
	}
	return s.Close()
}

// TestReadingAllIsNotHoldingAll: after a write of every record, and after a look at it, the file is
// not in the memory of the process.
func TestReadingAllIsNotHoldingAll(t *testing.T) {
	s := opened(t, Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	const objects, size = 8 * 1024, 4 << 10 // 32 MiB
	ctx, empty := context.Background(), mappedPages(t)
	content := func(n int) []byte { // which does not compress
		data := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(data)
		return data
	}
	var g sync.WaitGroup
	for w := range 64 {
		g.Go(func() {
			for i := w; i < objects; i += 64 {
				n := i * 5381 % objects // in no order, so that old pages are written again
				key := ObjectKey{Resource: "g/things", Name: fmt.Sprintf("%06d", n)}
				_, err := s.Mutate(ctx, key, func(*Object, uint64) (Mutation, error) {
					return Mutation{Data: content(n)}, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	before := mappedPages(t)
	most := before - empty
	for after, n := "", 0; ; {
		page, err := s.Objects(ctx, ObjectQuery{Resource: "g/things", After: after, Limit: 500})
		must(t, err)
		most = max(most, mappedPages(t)-before)
		for _, o := range page.Items {
			if !bytes.Equal(o.Data, content(n)) {
				t.Fatalf("object %d is wrong", n)
			}
			n++
		}
		if after = page.Next; after == "" {
			if n != objects {
				t.Errorf("%d objects, want %d", n, objects)
			}
			break
		}
	}
	t.Logf("%.1f MiB mapped at most", float64(most)/1024)
	if limit := 12 << 10; most > limit {
		t.Errorf("%d KiB of the file in memory, want %d at most", most, limit)
	}
}

// mappedPages is RssFile in KiB.
func mappedPages(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return n
}

// faultInMap returns a function that reads behind the end of a mapped file, which the kernel
// answers with SIGBUS.
func faultInMap(t *testing.T) func() error {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "map"))
	must(t, err)
	defer func() { _ = f.Close() }()
	data, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() {
		if err := syscall.Munmap(data); err != nil {
			t.Error(err)
		}
	})
	return func() error {
		if data[1<<15] == 1 {
			return nil
		}
		return nil
	}
}

// quickDir returns a directory in memory where there is space, so that hundreds of small cases do
// not wait for the disk.
func quickDir(t testing.TB) string {
	t.Helper()
	const shm, room = "/dev/shm", 256 << 20
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "limpet-state-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
