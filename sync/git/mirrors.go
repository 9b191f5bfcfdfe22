package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/lfs"
	"limpet/sync/git/pack"
	"limpet/sync/git/push"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// Mirrors is a directory of bare mirrors, one per remote. It is safe for concurrent use by one process.
type Mirrors struct {
	dir    string
	log    *slog.Logger
	client *transport.Client
	large  *lfs.Cache

	mu       sync.Mutex // guards all below; never held while something waits
	mirrors  map[string]*mirror
	listings map[string]*transport.Listing // by call.Identity: for the fetch that follows
	breakers map[string]breaker            // by URL, of servers that did not answer
	silent   map[[2]string]time.Time       // operations at hosts that did not answer, and when
}

// mirrorName is the length of the name of a mirror's directory.
const mirrorName = 32

// View opens mirrors to read from them only, also while another process uses them. No server is asked.
func View(dir string) *Mirrors {
	return newMirrors(dir, Options{AllowLocal: []string{"/"}, AllowDirs: []string{"/"}})
}

// Open uses dir for mirrors, making it when it is missing. What a killed process left half-made in it is
// removed, so no other process may use it at the same time.
func Open(dir string, o Options) (*Mirrors, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make mirrors directory: %w", err)
	}
	if err := sweep(dir); err != nil {
		return nil, fmt.Errorf("clean mirrors directory: %w", err)
	}
	return newMirrors(dir, o), nil
}

func newMirrors(dir string, o Options) *Mirrors {
	client := transport.New(dir, o)
	return &Mirrors{
		dir:      dir,
		log:      client.Options.Logger,
		client:   client,
		mirrors:  map[string]*mirror{},
		listings: map[string]*transport.Listing{},
		large:    lfs.NewCache(filepath.Join(dir, largeDir)),
		breakers: map[string]breaker{},
		silent:   map[[2]string]time.Time{},
	}
}

// Close closes files and idle connections. Calls that still run end with an error or finish; none may begin afterwards.
func (m *Mirrors) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mi := range m.mirrors {
		mi.mu.Lock()
		mi.closed = true
		mi.drop()
		mi.mu.Unlock()
	}
	m.client.CloseIdle()
	return nil
}

// mirror returns the mirror of an address, whether it exists on disk or not.
func (m *Mirrors) mirror(a auth.Address) *mirror {
	key := a.Key()
	m.mu.Lock()
	defer m.mu.Unlock()
	mi, ok := m.mirrors[key]
	if !ok {
		sum := sha256.Sum256([]byte(key))
		mi = &mirror{dir: filepath.Join(m.dir, hex.EncodeToString(sum[:])[:mirrorName]), addr: a, turn: make(chan struct{}, 1),
			seen: map[string]string{}}
		m.mirrors[key] = mi
	}
	return mi
}

// dirOf is the directory of the mirror of a remote, "" for one that has no address.
func (m *Mirrors) dirOf(r Remote) string {
	a, err := auth.ParseAddress(r.URL)
	if err != nil {
		return ""
	}
	return m.mirror(a).dir
}

// call is one operation at a server of a Remote.
type call struct {
	*transport.Call
	m        *Mirrors
	remote   Remote
	home     auth.Address // of Remote.URL, which names the directory
	fallback bool         // the server is a fallback
}

// begin starts an operation at the server of r.URL. End must follow.
func (m *Mirrors) begin(ctx context.Context, op string, r Remote) (*call, error) {
	c, err := m.client.Begin(ctx, op, transport.Target{URL: r.URL, Creds: r.Creds, AllowInsecure: r.AllowInsecure, Limits: r.Limits,
		Meter: r.Meter, Requests: r.Requests})
	if err != nil {
		return nil, err
	}
	return &call{Call: c, m: m, remote: r, home: c.Addr}, nil
}

// reading is what a reading operation works with.
type reading struct {
	ctx    context.Context // run-scope: of the one operation
	store  *pack.Store
	limits pack.Limits
}

// read runs f over the mirror of r. When f meets damage, the commit that was fetched last is fetched once more,
// which makes the mirror anew, and f runs a second time; nothing else makes a request.
func (m *Mirrors) read(ctx context.Context, op string, r Remote, f func(*reading) error) error {
	c, err := m.begin(ctx, op, r)
	if err != nil {
		return err
	}
	defer c.End()
	mi := m.mirror(c.home)
	err = c.readMirror(mi, f)
	if errors.Is(err, pack.ErrGone) { // the mirror has other packs by now
		mi.changed()
		err = c.readMirror(mi, f)
	}
	if errors.Is(err, pack.ErrDamaged) && c.refetch(mi, err) {
		err = c.readMirror(mi, f)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = &Error{Kind: Unknown, Err: fmt.Errorf("%w: nothing was fetched yet", ErrUnknownCommit), Hint: "fetch it first"}
	}
	return c.Fail(err)
}

// readMirror runs f over the mirror as it is, and marks the mirror when it is damaged.
func (c *call) readMirror(mi *mirror, f func(*reading) error) error {
	h, err := mi.use(c.Limits.ObjectBytes)
	if err == nil {
		err = f(&reading{ctx: c.Ctx, store: h.Store, limits: c.Limits})
		defer mi.release(h)
	}
	if errors.Is(err, pack.ErrDamaged) && !errors.Is(err, pack.ErrGone) {
		mi.markDamaged(h)
	}
	return err
}

// refetch fetches anew what a damaged mirror held, if this process knows what that was.
func (c *call) refetch(mi *mirror, why error) bool {
	mi.mu.Lock()
	ref := mi.last
	mi.mu.Unlock()
	if ref.Hash == "" {
		return false
	}
	c.m.log.Warn("mirror is damaged, rebuilding", "url", c.URL(), "err", why)
	_, err := c.m.Fetch(c.Ctx, c.remote, ref)
	if err != nil {
		c.m.log.Warn("cannot rebuild damaged mirror", "url", c.URL(), "err", err)
	}
	return err == nil
}

// Prune deletes the mirrors of remotes that are neither in keep nor submodules of those, and into which nothing
// was fetched for the time of rest, and returns how many there were. One that is being fetched into is left for
// the next time.
func (m *Mirrors) Prune(keep []Remote, rest time.Duration) (removed int, err error) {
	wanted := make(map[string]bool)
	for _, r := range keep {
		wanted[m.dirOf(r)] = true
	}
	dirs, err := os.ReadDir(m.dir)
	if err != nil {
		return 0, err
	}
	for _, d := range dirs {
		dir := filepath.Join(m.dir, d.Name())
		if !d.IsDir() || len(d.Name()) != mirrorName || wanted[dir] || m.inParent(dir, wanted, rest) || time.Since(fetchedAt(dir)) < rest {
			continue
		}
		n, _ := readNote(dir)
		if a, perr := auth.ParseAddress(n.URL); perr == nil && m.mirror(a).dir == dir { // else nothing can be fetched into it
			mi := m.mirror(a)
			select {
			case mi.turn <- struct{}{}:
				defer mi.unlock()
				defer mi.changed()
			default:
				continue
			}
		}
		err = errors.Join(err, os.RemoveAll(dir), os.RemoveAll(filepath.Join(m.dir, largeDir, d.Name())))
		removed++
	}
	return removed, err
}

// inParent reports whether a mirror is that of a submodule of a wanted repository: it was pulled with it last, or at most
// the time of rest before something came into that one.
func (m *Mirrors) inParent(dir string, wanted map[string]bool, rest time.Duration) bool {
	note := filepath.Join(dir, parentFile)
	name, err := os.ReadFile(note)
	parent := filepath.Join(m.dir, string(name))
	if err != nil || !wanted[parent] {
		return false
	}
	info, err := os.Stat(note)
	return err == nil && info.ModTime().After(fetchedAt(parent).Add(-rest))
}

// fetchedAt is when something came into a mirror last.
func fetchedAt(dir string) time.Time {
	var last time.Time
	for _, d := range []string{dir, filepath.Join(dir, "objects", "pack")} {
		if info, err := os.Stat(d); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Usage counts the mirrors and the bytes that they take on disk, with the files of
// Git LFS. What goes while it looks is not counted. It reads directories only.
func (m *Mirrors) Usage(ctx context.Context) (mirrors int, bytes int64, err error) {
	err = filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && !d.IsDir():
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		case err == nil && filepath.Dir(path) == m.dir && len(d.Name()) == mirrorName:
			mirrors++
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return mirrors, bytes, err
}

// Pushable asks the remote whether it takes a push from these credentials: it has the server begin one, and
// nothing is written. An *Error of kind ReadOnly says that a push is refused; any other one says that this cannot
// be told. A local directory is not asked. It blocks as Resolve does.
func (m *Mirrors) Pushable(ctx context.Context, r Remote) error {
	c, err := m.begin(ctx, "ask for a push", r)
	if err != nil {
		return err
	}
	defer c.End()
	err = c.Fail(push.Check(c.Call))
	if KindOf(err) == Empty { // who pushes to it begins it
		return nil
	}
	return err
}

// Push has a branch of the remote, by its full name, go from the commit old to w; with old "" it is made anew.
// The host compares old with what it has: no commit is lost, and nothing is ever forced. Only the server of r.URL
// is asked, never a fallback. The mirror stays as it is until the next Fetch.
//
// It blocks as Fetch does. Of its errors these say that nothing was changed: Overtaken (fetch, compose and push
// again), Declined and ReadOnly (a user has to act), Refused and TooLarge. After any other one it may have
// arrived all the same: see Contains. A directory that another process changes meanwhile may have got a part: the
// error, also Overtaken, has the number of changes.
func (m *Mirrors) Push(ctx context.Context, r Remote, branch, old string, w *Written) error {
	c, err := m.begin(ctx, "push", r)
	if err != nil {
		return err
	}
	defer c.End()
	u := push.Update{Branch: branch, Objects: w.made}
	u.New, err = parseHash("commit", w.Hash)
	if err == nil && old != "" {
		u.Old, err = parseHash("commit", old)
	}
	if err == nil && (!strings.HasPrefix(branch, headPrefix) || checkRefName(branch) != nil) {
		err = &Error{Kind: Refused, Err: fmt.Errorf("%q is not the full name of a branch", text.Line(branch, 100))}
	}
	if err != nil {
		return c.Fail(err)
	}
	m.mu.Lock()
	delete(m.listings, c.Identity()) // a list of refs that is old soon
	m.mu.Unlock()
	return c.Fail(push.Push(c.Call, u))
}
