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
	"sync"
	"sync/atomic"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/lfs"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

// Mirrors is a directory of bare mirrors, one per remote. It is safe for concurrent use by one
// process.
type Mirrors struct {
	dir    string
	log    *slog.Logger
	client *transport.Client
	large  *lfs.Cache

	received atomic.Int64 // see Received

	mu       sync.Mutex // guards all below; never held while something waits
	mirrors  map[string]*mirror
	listings map[string]*transport.Listing // by call.Identity: for the fetch that follows
	breakers map[string]breaker            // by URL, of servers that did not answer
	silent   map[[2]string]time.Time       // operations at hosts that did not answer, and when
}

// mirrorName is the length of the name of a mirror's directory.
const mirrorName = 32

// View opens mirrors to read from them only, also while another process uses them. No server is
// asked.
func View(dir string) *Mirrors {
	return newMirrors(dir, Options{AllowLocal: []string{"/"}, AllowDirs: []string{"/"}})
}

// Open uses dir for mirrors, making it when it is missing. What a killed process left half-made in
// it is removed, so no other process may use it at the same time.
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

// Close closes files and idle connections. Calls that still run end with an error or finish; none
// may begin afterwards.
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

// Received returns how many bytes servers have sent to fetches since Open; files of Git LFS are not
// among them.
func (m *Mirrors) Received() int64 { return m.received.Load() }

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
	exchange *transport.Call
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
	return &call{exchange: c, m: m, remote: r, home: c.Addr}, nil
}

// reading is what a reading operation works with.
type reading struct {
	ctx    context.Context // run-scope: of the one operation
	store  *pack.Store
	limits pack.Limits
}

// read runs f over the mirror of r. When f meets damage, the commit that was fetched last is
// fetched once more, which makes the mirror anew, and f runs a second time; nothing else makes a
// request.
func (m *Mirrors) read(ctx context.Context, op string, r Remote, f func(*reading) error) error {
	c, err := m.begin(ctx, op, r)
	if err != nil {
		return err
	}
	defer c.exchange.End()
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
	return c.exchange.Fail(err)
}

// readMirror runs f over the mirror as it is, and marks the mirror when it is damaged.
func (c *call) readMirror(mi *mirror, f func(*reading) error) error {
	h, err := mi.use(c.exchange.Limits.ObjectBytes)
	if err == nil {
		err = f(&reading{ctx: c.exchange.Ctx, store: h.store, limits: c.exchange.Limits})
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
	c.m.log.Warn("mirror is damaged, rebuilding", "url", c.exchange.URL(), "err", why)
	_, err := c.m.Fetch(c.exchange.Ctx, c.remote, ref)
	if err != nil {
		c.m.log.Warn("cannot rebuild damaged mirror", "url", c.exchange.URL(), "err", err)
	}
	return err == nil
}
