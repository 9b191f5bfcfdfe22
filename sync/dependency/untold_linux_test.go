package dependency

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUntold: where the kernel has no watches left, files are polled and it is said
// once, until it has some again.
func TestUntold(t *testing.T) {
	t.Parallel()
	site := thing(File, "site")
	x := newWatching(t, t.TempDir(), site)
	x.write("git/ns.site/token", "1")
	x.look(site)
	full, asked := true, 0
	x.n.may = func(dir string) error {
		if asked++; full && filepath.Base(dir) == "ns.site" {
			return unix.ENOSPC
		}
		return tells(dir)
	}
	const said = "the kernel does not tell"
	for n := range 3 {
		x.write("git/ns.site/token", fmt.Sprint("polled ", n))
		x.n.again = time.Time{} // the time has come
		if x.w.look(x.n) || x.n.kernel != nil || len(x.n.dirs) > 0 {
			t.Fatalf("look %d: watched %v", n, x.n.dirs)
		}
		before := asked
		if x.w.look(x.n) || asked > before {
			t.Fatalf("look %d: the kernel is asked again at once", n)
		}
		x.w.registry.mu.Lock()
		version := x.w.registry.seen[site].version
		x.w.registry.mu.Unlock()
		if version == x.last[site] {
			t.Fatalf("look %d: the change is not found", n)
		}
		x.last[site] = version
	}
	if got := x.log.count(said); got != 1 || x.log.count(unix.ENOSPC.Error()) != 1 {
		t.Errorf("said %d times: %s", got, x.log.text.String())
	}
	full, x.n.again = false, time.Time{}
	x.look(site)
	x.write("git/ns.site/token", "told")
	x.told("when there are watches again", site)
}

// TestManyDirectories: a thousand are watched; of too many, none is.
func TestManyDirectories(t *testing.T) {
	t.Parallel()
	x := newWatching(t, t.TempDir(), thing(File, "r0"))
	add := func(from, to int) {
		for n := from; n < to; n++ {
			x.do(os.MkdirAll(x.path(fmt.Sprintf("git/ns.r%d", n)), 0o700))
			x.w.Use(thing(Repository, fmt.Sprint("r", n)), byName(thing(File, fmt.Sprint("r", n))))
		}
	}
	add(0, 1000)
	x.look(thing(File, "r999"))
	if got := len(x.n.kernel.WatchList()); got < 1000 || got > 1020 {
		t.Errorf("%d directories are watched", got)
	}
	x.write("git/ns.r999/token", "1")
	x.told("of the last of a thousand", thing(File, "r999"))
	add(1000, mostDirs)
	if x.w.look(x.n) || x.n.kernel != nil || x.log.count(errTooMany.Error()) != 1 {
		t.Errorf("%d directories are watched", len(x.n.dirs))
	}
}

// TestForeignFileSystem: what changes unseen by this kernel is polled.
func TestForeignFileSystem(t *testing.T) {
	t.Parallel()
	rule := Thing{Kind: Path, Name: "/proc/self/status"}
	x := newWatching(t, t.TempDir(), rule)
	if x.w.look(x.n) || x.log.count("/proc") == 0 {
		t.Errorf("watched: %v", x.n.dirs)
	}
}

// TestRestless: directories that come, move and go while they are watched hold up
// neither who looks nor the kernel's messenger.
func TestRestless(t *testing.T) {
	t.Parallel()
	site := thing(File, "site")
	x := newWatching(t, t.TempDir(), site)
	x.look(site)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 300 {
			x.write("git/ns.site/token", fmt.Sprint(n))
			if err := os.Rename(x.path("git"), x.path("old")); err != nil {
				t.Error(err)
			}
			if err := os.RemoveAll(x.path("old")); err != nil {
				t.Error(err)
			}
		}
	}()
	for looking := true; looking; {
		x.look(site)
		select {
		case <-done:
			looking = false
		default:
		}
	}
	x.look(site)
	x.write("git/ns.site/token", "at last")
	x.told("after all", site)
}
