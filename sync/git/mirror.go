package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/pack"
)

// idleAfter is how long the packs of a mirror stay open after the last read. Jobs read in bursts; a
// hundred quiet mirrors must not hold files or memory. Of the files pack.maxOpen are open at most.
const idleAfter = 10 * time.Second

// mirror is one directory of Mirrors. Whoever holds its turn may change the
// directory; readers need no turn, they hold a store.
type mirror struct {
	dir  string
	addr auth.Address
	turn chan struct{} // capacity 1: full while it is locked

	mu     sync.Mutex  // guards all below; no network under it
	open   *handle     // nil when closed
	former *pack.Store // the last one before new packs came; nil = nothing of it is known to be there
	idle   *time.Timer
	closed bool
	last   Ref // what was fetched last, for healing; the zero Ref at first
	// seen are the commits that the first URL announced last, by ref, and the last tips of
	// fallbacks that may not be served, by URL.
	seen map[string]string
}

func (m *mirror) see(name, hash string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[name] = hash
}

func (m *mirror) lastSeen(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[name]
}

// announcedCommit is the commit that the first URL announced last for a ref; after a
// restart it is the one that was fetched last.
func (m *mirror) announcedCommit(name string) string {
	if hash := m.lastSeen(name); hash != "" {
		return hash
	}
	refs, _ := pack.ReadRefs(m.dir)
	if refs[name].IsZero() {
		return ""
	}
	return refs[name].String()
}

// handle is an open store of a mirror and its users.
type handle struct {
	store  *pack.Store
	users  int  // guarded by the mirror's mu
	retire bool // guarded by the mirror's mu: close when the last user is gone
}

func (m *mirror) lock(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *mirror) unlock() { <-m.turn }

// use opens the mirror for reading; release must follow. Errors wrap
// pack.ErrDamaged, or fs.ErrNotExist when nothing was ever fetched.
func (m *mirror) use(limit int64) (*handle, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.New("mirrors are closed")
	}
	if m.open != nil && m.open.store.Limit < limit {
		m.drop()
	}
	if m.open == nil {
		if n, err := readNote(m.dir); err != nil {
			return nil, err
		} else if n.URL != m.addr.String() {
			return nil, fmt.Errorf("%w: it is one of another URL", pack.ErrDamaged)
		}
		s, err := pack.Open(m.dir, limit, m.former)
		if err != nil {
			return nil, err
		}
		m.open, m.former = &handle{store: s}, nil
	}
	if m.idle != nil {
		m.idle.Stop()
	}
	m.open.users++
	return m.open, nil
}

// release ends a use. The last user of one that was replaced closes it.
func (m *mirror) release(h *handle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.users--
	switch {
	case h.users > 0:
	case h.retire:
		h.store.Close()
	default:
		m.idle = time.AfterFunc(idleAfter, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.open == h && h.users == 0 {
				m.drop()
			}
		})
	}
}

// changed makes the next use open the directory anew.
func (m *mirror) changed() { m.extended(nil) }

// extended is changed where the packs of a store are still there. nil = none may be.
func (m *mirror) extended(former *pack.Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
	m.former = former
}

// drop retires the open store. The caller holds mu.
func (m *mirror) drop() {
	if m.open == nil {
		return
	}
	if m.open.retire = true; m.open.users == 0 {
		m.open.store.Close()
	}
	m.open, m.idle = nil, nil // the timer refers to the handle
}

// markDamaged makes the next fetch throw the mirror away, also after a restart; until then what is
// sound can be read. h is what showed the damage, nil for a mirror that cannot be opened: one that
// was made anew meanwhile is not blamed.
func (m *mirror) markDamaged(h *handle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h != nil && h != m.open {
		return
	}
	if f, err := os.Create(filepath.Join(m.dir, damageFile)); err == nil {
		f.Close()
	}
}

// isDamaged reports whether the mirror was marked.
func (m *mirror) isDamaged() bool {
	_, err := os.Stat(filepath.Join(m.dir, damageFile))
	return err == nil
}
