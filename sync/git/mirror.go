package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"limpet/state/atomicfile"
	"limpet/sync/auth"
	"limpet/sync/git/pack"
)

// idleAfter is how long the packs of a mirror stay open after the last read.
// Jobs read in bursts; a hundred quiet mirrors must not hold files or memory. Of the files pack.maxOpen are open at most.
const idleAfter = 10 * time.Second

// mirror is one directory of Mirrors. Whoever holds its turn may change the
// directory; readers need no turn, they hold a store.
type mirror struct {
	dir  string
	addr auth.Address
	turn chan struct{} // capacity 1: full while it is locked

	mu     sync.Mutex // guards all below; no network under it
	open   *handle    // nil when closed
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
	*pack.Store
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
	if m.open != nil && m.open.Limit < limit {
		m.drop()
	}
	if m.open == nil {
		if n, err := readNote(m.dir); err != nil {
			return nil, err
		} else if n.URL != m.addr.String() {
			return nil, fmt.Errorf("%w: it is one of another URL", pack.ErrDamaged)
		}
		s, err := pack.Open(m.dir, limit)
		if err != nil {
			return nil, err
		}
		m.open = &handle{Store: s}
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
		h.Close()
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
func (m *mirror) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
}

// drop retires the open store. The caller holds mu.
func (m *mirror) drop() {
	if m.open == nil {
		return
	}
	if m.open.retire = true; m.open.users == 0 {
		m.open.Close()
	}
	m.open = nil
}

// markDamaged makes the next fetch throw the mirror away, also after a restart; until then what is sound can be read. h is
// what showed the damage, nil for a mirror that cannot be opened: one that was made anew meanwhile is not blamed.
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

// A mirror is a bare repository that git itself can read: packs with indexes, packed-refs (one file, so that no
// two names of branches can be in each other's way), shallow, and limpet.json, which says what the directory is.
// The files are replaced whole, by rename after fsync. No remote is in its config, and no secret anywhere.

// layoutFormat is raised when the layout changes; other mirrors are rebuilt.
const layoutFormat = 1

const (
	headFile    = "HEAD"
	configFile  = "config"
	shallowFile = "shallow"
	noteFile    = "limpet.json"
	damageFile  = "limpet-damaged"
)

// bareConfig is the configuration of a repository without a worktree.
const bareConfig = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n[gc]\n\tauto = 0\n"

// note is the content of limpet.json.
type note struct {
	Format int    `json:"format"`
	URL    string `json:"url"`
	First  int64  `json:"firstPackBytes"`
}

// makeBare lays out an empty bare repository in dir, which must not exist or be empty, with HEAD at a branch. Its files
// are for git alone, and are not synced.
func makeBare(dir, head string) error {
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{configFile: bareConfig, headFile: "ref: " + head + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeNote(dir string, n note) error {
	data, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	return pack.ReplaceFile(filepath.Join(dir, noteFile), append(data, '\n'))
}

// readNote checks that dir is a mirror that this version understands. Errors wrap
// pack.ErrDamaged, or fs.ErrNotExist when there is no directory.
func readNote(dir string) (n note, err error) {
	if _, err := os.Stat(dir); err != nil {
		return n, err
	}
	data, err := os.ReadFile(filepath.Join(dir, noteFile))
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err == nil && n.Format != layoutFormat {
		err = fmt.Errorf("%s is of format %d", noteFile, n.Format)
	}
	if err != nil {
		return n, fmt.Errorf("%w: %v", pack.ErrDamaged, err) // a missing file is no missing mirror
	}
	return n, nil
}

// readShallow reads the commits whose parents were left out.
func readShallow(dir string) ([]pack.ID, error) {
	data, err := os.ReadFile(filepath.Join(dir, shallowFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []pack.ID
	for line := range strings.FieldsSeq(string(data)) {
		id, ok := pack.ParseID(line)
		if !ok {
			return nil, fmt.Errorf("%w: malformed line in %s", pack.ErrDamaged, shallowFile)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// writeShallow writes the ends of history, before the commits are there that have
// no parents: a server that does not hear of them leaves out what we lack.
func writeShallow(dir string, ids []pack.ID) error {
	if old, err := readShallow(dir); err == nil && slices.Equal(old, ids) {
		return nil
	}
	var out []byte
	for _, id := range ids {
		out = append(out, id.String()+"\n"...)
	}
	path := filepath.Join(dir, shallowFile)
	err := pack.ReplaceFile(path, out)
	if len(ids) == 0 {
		err = os.Remove(path)
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}

// Names of what is being made: a process that was killed leaves them behind.
const (
	trashPrefix = "tmp_old_"
	buildPrefix = "tmp_new_"
)

// sweep removes what a killed process left below the directory of all mirrors:
// half-made mirrors, spooled packs, packs without an index and lock files.
func sweep(root string) error {
	files, mirrors := os.DirFS(root), strings.Repeat("[0-9a-f]", mirrorName)
	for _, pattern := range []string{"tmp_*", mirrors + "/tmp_*", mirrors + "/*.lock", mirrors + "/objects/pack/tmp_*",
		mirrors + "/objects/pack/*.lock", mirrors + "/objects/pack/*.pack"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if base, isPack := strings.CutSuffix(name, ".pack"); isPack {
				if _, err := fs.Stat(files, base+".idx"); !errors.Is(err, fs.ErrNotExist) {
					continue
				}
			}
			if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
