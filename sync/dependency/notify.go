package dependency

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Files are looked at when the kernel tells of a change in a directory where they
// are, or would be; the look alone says what has changed. Where the kernel does not
// tell (its watches have run out, a file system of a network, not Linux), they are
// polled.
const (
	// gather is how long after the first news a look begins. One that takes long
	// waits longer, gatherRest times itself and at most pollLeast: about a twentieth
	// of a core goes into directories that never rest.
	gather     = 200 * time.Millisecond
	gatherRest = 20
	// pollTold is the rest between looks although nobody tells of anything: a file
	// system that is mounted over a directory is told by nobody.
	pollTold = 30 * time.Second
	// The rest after a look where nobody tells is pollRest times as long as the look
	// was, so that it takes half a hundredth of a core at most; two files of each of a
	// thousand Repositories take 16 ms on a small busy host, and no files 3 ms.
	pollRest  = 200
	pollLeast = 2 * time.Second
	pollMost  = 10 * time.Second
	// mostDirs bounds the directories that are watched: half of what older kernels
	// (before 5.11) give to all programs of a user together.
	mostDirs = 4096
	// retry is the rest before the kernel is asked again.
	retry = 10 * time.Minute
)

// errTooMany says that there are more than mostDirs directories.
var errTooMany = errors.New("too many directories")

// poll looks at the files until ctx ends.
func (w *Watcher) poll(ctx context.Context) {
	n := newNotifier(w)
	defer n.close()
	for pause, told := pollLeast, time.Duration(0); w.await(ctx, pause, told); {
		began := time.Now()
		works := w.look(n)
		took := time.Since(began)
		pause, told = min(max(pollLeast, pollRest*took), pollMost), 0
		if works {
			pause, told = pollTold, min(max(gather, gatherRest*took), pollLeast)
		}
	}
}

// look looks at the files, and says whether changes after it are told.
func (w *Watcher) look(n *notifier) (works bool) {
	used, _ := w.registry.Used(File)
	paths, _ := w.registry.Used(Path)
	n.begin()
	for t, version := range w.files.look(append(used, paths...), n.visit) {
		w.saw(t, version, nil)
	}
	return n.end()
}

// await waits until a look is due: for pause or, unless told is 0, for that long
// after there is something to look for. false means that ctx has ended.
func (w *Watcher) await(ctx context.Context, pause, told time.Duration) bool {
	touched := w.touched
	if told == 0 {
		touched = nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-touched:
	}
	if !rest(ctx, told) {
		return false
	}
	select {
	case <-touched: // the rest of the burst
	default:
	}
	return true
}

// entry is a name in a directory, "" for all of them. The directory is real: no part
// of its path is a link.
type entry struct{ dir, name string }

// lead is where a path leads. The zero lead is nowhere.
type lead struct {
	to  string // real
	dir bool
}

// notifier has the kernel tell of changes on the way to the paths of the last look:
// whatever a path leads through, links included, is watched as a name in its
// directory, so that links that are swapped, files that are replaced and directories
// that come later are all alike. Only who looks calls its methods.
type notifier struct {
	may   func(dir string) error // why the kernel would not tell of all changes there
	wake  chan struct{}          // capacity 1: gets what is told
	log   *slog.Logger
	said  bool
	again time.Time // when the kernel may be asked
	off   bool      // it may not be in this round

	kernel *fsnotify.Watcher // nil until it is needed
	pump   sync.WaitGroup    // reads what kernel tells
	round  int               // counts looks
	leads  map[string]lead   // in this round
	dirs   map[string]int    // that are watched, and the last round that needs them
	count  int               // of dirs in this round
	err    error             // of this round

	mu      sync.Mutex    // guards matters
	matters map[entry]int // what is of interest, and the last round that needs it
}

func newNotifier(w *Watcher) *notifier {
	return &notifier{may: w.may, wake: w.touched, log: w.o.Logger, dirs: map[string]int{}, matters: map[entry]int{}}
}

// begin comes before a look.
func (n *notifier) begin() {
	n.round++
	n.off = time.Now().Before(n.again)
	n.leads, n.count, n.err = map[string]lead{}, 0, nil
}

// visit is called before the look looks at a path. Each directory on the way is
// watched before it is looked into, so that no change comes between.
func (n *notifier) visit(path string) {
	if n.off || n.err != nil {
		return
	}
	path, err := filepath.Abs(path)
	if err != nil {
		n.err = err
		return
	}
	if l := n.follow(path); l.dir {
		n.watch(entry{dir: l.to})
	}
}

func (n *notifier) follow(path string) lead {
	parent := filepath.Dir(path)
	if parent == path {
		return lead{path, true}
	}
	if l, ok := n.leads[path]; ok {
		return l
	}
	n.leads[path] = lead{} // for links in a circle
	in := n.follow(parent)
	if !in.dir || !n.watch(entry{in.to, filepath.Base(path)}) {
		return lead{}
	}
	l := lead{to: filepath.Join(in.to, filepath.Base(path))}
	info, err := os.Lstat(l.to)
	switch {
	case err != nil:
		return lead{}
	case info.Mode()&fs.ModeSymlink == 0:
		l.dir = info.IsDir()
	default:
		to, err := os.Readlink(l.to)
		if err != nil {
			return lead{}
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(in.to, to)
		}
		l = n.follow(filepath.Clean(to))
	}
	n.leads[path] = l
	return l
}

// watch has an entry told. A directory that is watched may have been replaced, so it
// is asked for in each round.
func (n *notifier) watch(e entry) bool {
	n.mu.Lock()
	n.matters[e] = n.round
	n.mu.Unlock()
	if n.dirs[e.dir] == n.round {
		return true
	}
	err := n.may(e.dir)
	if n.count++; n.count > mostDirs {
		err = errTooMany
	}
	if err == nil && n.kernel == nil {
		err = n.open()
	}
	if err == nil {
		err = n.kernel.Add(e.dir)
	}
	switch {
	case err == nil:
		n.dirs[e.dir] = n.round
	case !errors.Is(err, fs.ErrNotExist): // gone meanwhile, which its parent tells
		n.err = fmt.Errorf("watch %s: %w", e.dir, err)
	}
	return err == nil
}

// end comes after a look. It says whether changes are told from now on.
func (n *notifier) end() (works bool) {
	n.leads = nil
	if n.err != nil {
		level := slog.LevelDebug
		if !n.said {
			level, n.said = slog.LevelInfo, true
		}
		n.log.Log(context.Background(), level, "the kernel does not tell of changed files here: they are looked at every few seconds", "err", n.err)
		n.close()
		n.again = time.Now().Add(retry)
	}
	for dir, round := range n.dirs {
		if round != n.round {
			_ = n.kernel.Remove(dir) // it fails for what is gone
			delete(n.dirs, dir)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for e, round := range n.matters {
		if round != n.round {
			delete(n.matters, e)
		}
	}
	return !n.off && n.err == nil
}

func (n *notifier) open() (err error) {
	if n.kernel, err = fsnotify.NewWatcher(); err != nil {
		n.kernel = nil
		return err
	}
	kernel := n.kernel
	n.pump.Go(func() { n.read(kernel) })
	return nil
}

// close ends all watches, and returns when nothing is read any more.
func (n *notifier) close() {
	if n.kernel == nil {
		return
	}
	if err := n.kernel.Close(); err != nil {
		n.log.Debug("cannot close the watches of files", "err", err)
	}
	n.pump.Wait()
	n.kernel = nil
	clear(n.dirs)
}

// read wakes for what is of interest until kernel is closed. It never waits for who
// looks: kernel would wait for it, and who looks for kernel.
func (n *notifier) read(kernel *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-kernel.Events:
			if !ok {
				return
			}
			if n.matter(filepath.Clean(e.Name)) {
				signal(n.wake)
			}
		case _, ok := <-kernel.Errors: // more was to tell than the kernel keeps
			if !ok {
				return
			}
			signal(n.wake)
		}
	}
}

func (n *notifier) matter(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	dir := filepath.Dir(path)
	return n.matters[entry{dir, filepath.Base(path)}] > 0 || n.matters[entry{dir: dir}] > 0
}
