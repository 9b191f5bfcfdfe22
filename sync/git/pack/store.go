package pack

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
	"weak"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"limpet/state/atomicfile"
	"limpet/sync/git/giterr"
)

// Store is the packs of one mirror, which stay the same; a fetch makes a new Store. It is safe for
// concurrent use. Every object is checked against its name before it is given out.
type Store struct {
	Packs []*pack // newest first
	Limit int64   // bytes of any one object
}

// pack is a pack with its index, which is in memory.
type pack struct {
	name     string        // 40 hex digits, as in pack-<name>.pack
	path     string        // of the file
	file     *os.File      // nil while it is closed
	users    int           // that read the file
	place    *list.Element // among the open files; nil when closed, or when it is a Spooled's
	idx      *idxfile.MemoryIndex
	size     int64
	modified time.Time
}

// newPack returns a pack that is not open yet. What is cached of it goes when it does.
func newPack(name string) *pack {
	p := &pack{name: name}
	runtime.AddCleanup(p, bases.forget, weak.Make(p))
	return p
}

// Open opens all packs below dir/objects/pack that have an index. Those that a former Store of the
// directory has, nil = none, are not read again. Its errors wrap ErrDamaged unless the file system
// itself fails.
func Open(dir string, limit int64, former *Store) (*Store, error) {
	packDir := filepath.Join(dir, "objects", "pack")
	entries, err := os.ReadDir(packDir)
	if err != nil {
		return nil, err
	}
	s := &Store{Limit: limit}
	for _, f := range entries {
		name, isIndex := strings.CutSuffix(f.Name(), ".idx")
		name, named := strings.CutPrefix(name, "pack-")
		if !isIndex || !named || len(name) != 40 {
			continue
		}
		if at := former.indexOf(name); at >= 0 {
			s.Packs = append(s.Packs, former.Packs[at])
			continue
		}
		base := filepath.Join(packDir, "pack-"+name)
		p := newPack(name)
		p.path = base + ".pack"
		s.Packs = append(s.Packs, p)
		if err := p.load(base + ".idx"); err != nil {
			s.Close()
			return nil, err
		}
	}
	slices.SortStableFunc(s.Packs, func(a, b *pack) int { return b.modified.Compare(a.modified) })
	return s, nil
}

// indexOf returns the place of a pack in Packs, or -1.
func (s *Store) indexOf(name string) int {
	if s == nil {
		return -1
	}
	return slices.IndexFunc(s.Packs, func(p *pack) bool { return p.name == name })
}

// load reads the index of a pack and checks that both belong together.
func (p *pack) load(index string) error {
	file, err := files.open(p)
	if err != nil {
		return err
	}
	defer files.done(p)
	f, err := p.openFile(index)
	if err != nil {
		return err
	}
	defer f.Close()
	p.idx = idxfile.NewMemoryIndex()
	if err := idxfile.NewDecoder(f).Decode(p.idx); err != nil {
		return p.damaged(err)
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	p.size, p.modified = info.Size(), info.ModTime()
	var head [12]byte
	var sum ID
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return p.damaged(err)
	}
	if _, err := file.ReadAt(sum[:], max(p.size-20, 0)); err != nil {
		return p.damaged(err)
	}
	if string(head[:4]) != "PACK" || binary.BigEndian.Uint32(head[8:]) != p.idx.Fanout[255] || sum != p.idx.PackfileChecksum {
		return p.damaged(errors.New("pack and index do not belong together"))
	}
	return nil
}

// offset is where an object begins, of one that is in a merged pack more than once the first (see
// Consolidate).
func (p *pack) offset(id ID) (int64, error) {
	group := p.idx.FanoutMapping[id[0]]
	if group < 0 {
		return 0, plumbing.ErrObjectNotFound
	}
	names, offsets := p.idx.Names[group], p.idx.Offset32[group]
	i, found := sort.Find(len(names)/len(id), func(i int) int { return bytes.Compare(id[:], names[i*len(id):][:len(id)]) })
	if !found {
		return 0, plumbing.ErrObjectNotFound
	}
	first := uint64(math.MaxInt64)
	for ; i < len(names)/len(id) && ID(names[i*len(id):]) == id; i++ {
		at := uint64(binary.BigEndian.Uint32(offsets[4*i:]))
		if large := at & math.MaxInt32; large != at { // its place in the table of 63-bit offsets
			if 8*large+8 > uint64(len(p.idx.Offset64)) {
				return 0, errors.New("index has no such offset")
			}
			at = binary.BigEndian.Uint64(p.idx.Offset64[8*large:])
		}
		first = min(first, at)
	}
	return int64(first), nil
}

// damaged wraps ErrDamaged. An object that is too large is no damage, and neither are too many open
// files.
func (p *pack) damaged(err error) error {
	_, large := errors.AsType[*giterr.TooLargeError](err)
	if large || errors.Is(err, ErrDamaged) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return err
	}
	return fmt.Errorf("%w: pack %.8s: %w", ErrDamaged, p.name, err)
}

// Close closes the files; a later read opens them again.
func (s *Store) Close() { files.close(s.Packs) }

// Bytes is the size of all packs.
func (s *Store) Bytes() (n int64) {
	for _, p := range s.Packs {
		n += p.size
	}
	return n
}

// Has reports whether an object is there, without reading it.
func (s *Store) Has(id ID) bool {
	return slices.ContainsFunc(s.Packs, func(p *pack) bool {
		there, _ := p.idx.Contains(id) // it is in memory
		return there
	})
}

// find returns the pack that has an object, and the offset in it.
func (s *Store) find(id ID) (*pack, int64, error) {
	for _, p := range s.Packs {
		at, err := p.offset(id)
		switch {
		case err == nil:
			return p, at, nil
		case !errors.Is(err, plumbing.ErrObjectNotFound):
			return nil, 0, p.damaged(err)
		}
	}
	return nil, 0, fmt.Errorf("%w: %s", ErrMissing, id)
}

// Read returns an object of at most limit bytes and its kind. The bytes are the
// caller's. Errors wrap ErrMissing or ErrDamaged, or are *TooLargeError.
func (s *Store) Read(id ID, limit int64) (Kind, []byte, error) {
	p, at, err := s.find(id)
	if err != nil {
		return 0, nil, err
	}
	k, data, err := s.read(p, at, min(limit, s.Limit), 0)
	if err != nil {
		return 0, nil, fmt.Errorf("object %s: %w", id, p.damaged(err))
	}
	// Plain SHA-1 is several times as fast as the one of IDOf, which has noticed attacks when the
	// object came.
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", k, len(data))
	sum.Write(data)
	if ID(sum.Sum(nil)) != id && IDOf(k, data) != id {
		return 0, nil, fmt.Errorf("%w: object %s has other content", ErrDamaged, id)
	}
	return k, data, nil
}

// ReadKind is Read for an object that has to be of one kind.
func (s *Store) ReadKind(id ID, want Kind, limit int64) ([]byte, error) {
	k, data, err := s.Read(id, limit)
	if err == nil && k != want {
		err = fmt.Errorf("object %s is a %s, not a %s", id, k, want)
	}
	return data, err
}

// read reads the object at an offset, and first the one that it is a delta of.
func (s *Store) read(p *pack, offset, limit int64, depth int) (Kind, []byte, error) {
	h, content, err := s.entry(p, offset, limit)
	if err != nil || h.Type != OfsDeltaKind && h.Type != RefDeltaKind {
		return h.Type, content, err
	}
	defer Recycle(content)
	size, err := deltaSize(content)
	if err != nil {
		return 0, nil, err
	}
	if size > limit {
		return 0, nil, &giterr.TooLargeError{What: "object", Size: size, Limit: limit}
	}
	if depth > maxChain {
		return 0, nil, errors.New("delta chain is cyclic")
	}
	at := h.OffsetReference
	if h.Type == RefDeltaKind {
		if at, err = p.offset(h.Reference); err != nil {
			return 0, nil, err
		}
	}
	key := baseKey{weak.Make(p), at}
	k, data, cached := bases.get(key)
	if !cached {
		if k, data, err = s.read(p, at, s.Limit, depth+1); err != nil {
			return 0, nil, err
		}
		bases.put(key, k, data)
	}
	out := buffer(size)
	if err := patch(out, data, content); err != nil {
		return 0, nil, err
	}
	return k, out, nil
}

// entry inflates the entry of a pack at an offset: an object of at most limit bytes, or a delta.
func (s *Store) entry(p *pack, offset, limit int64) (h packfile.ObjectHeader, content []byte, err error) {
	file, err := files.open(p)
	if err != nil {
		return h, nil, err
	}
	defer files.done(p)
	r := objectReaders.Get().(*objectReader)
	defer objectReaders.Put(r)
	if h, err = r.header(file, offset); err != nil {
		return h, nil, err
	}
	if h.Type == OfsDeltaKind || h.Type == RefDeltaKind {
		limit = s.Limit
	}
	if h.Length > limit {
		return h, nil, &giterr.TooLargeError{What: "object", Size: h.Length, Limit: limit}
	}
	content, err = r.inflate(h)
	return h, content, err
}

// History calls visit with the hash of tip and of each commit before it, once each, those
// included that a commit names and that are not in the store. visit reports whether to go
// on to the parents. whole reports that every visited commit was there; n counts them.
func (s *Store) History(ctx context.Context, tip ID, visit func(ID) bool) (n int, whole bool, err error) {
	whole = true
	queue, met := []ID{tip}, map[ID]bool{tip: true}
	for len(queue) > 0 {
		if n&0x3ff == 0 && ctx.Err() != nil {
			return n, false, context.Cause(ctx)
		}
		id := queue[0]
		queue = queue[1:]
		if !visit(id) {
			continue
		}
		data, err := s.ReadKind(id, CommitKind, s.Limit)
		if errors.Is(err, ErrMissing) {
			whole = false
			continue
		}
		if err != nil {
			return n, false, err
		}
		c, err := ParseCommit(data)
		if err != nil {
			return n, false, err
		}
		n++
		for _, p := range c.Parents {
			if !met[p] {
				met[p] = true
				queue = append(queue, p)
			}
		}
	}
	return n, whole, nil
}

// Size is the size of an object. Of a delta nothing but its head is inflated.
func (s *Store) Size(id ID) (int64, error) {
	p, at, err := s.find(id)
	if err != nil {
		return 0, err
	}
	file, err := files.open(p)
	if err != nil {
		return 0, p.damaged(err)
	}
	defer files.done(p)
	r := objectReaders.Get().(*objectReader)
	defer objectReaders.Put(r)
	h, err := r.header(file, at)
	if err != nil {
		return 0, p.damaged(err)
	}
	if h.Type != OfsDeltaKind && h.Type != RefDeltaKind {
		return h.Length, nil
	}
	head, err := r.head(min(h.Length, deltaHead))
	if err == nil {
		h.Length, err = deltaSize(head)
	}
	if err != nil {
		return 0, p.damaged(err)
	}
	return h.Length, nil
}

// baseCache holds objects that deltas were built on. The slices in it are shared and must not be
// changed.
type baseCache struct {
	mu    sync.Mutex // guards all below
	items map[baseKey]base
	bytes int // of their buffers
}

var bases baseCache // the memory of mirrors is one of the process: an agent may follow a thousand

type baseKey struct {
	pack   weak.Pointer[pack] // so that its index is not held
	offset int64
}

type base struct {
	kind Kind
	data []byte
}

// cacheBytes bounds the cache: more than 16 MiB gained nothing for one mirror
// when it was measured. largestBase is the largest object that is cached.
const (
	cacheBytes  = 12 << 20
	largestBase = 1 << 20
)

func (c *baseCache) get(key baseKey) (Kind, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.items[key]
	return b.kind, b.data, ok
}

func (c *baseCache) put(key baseKey, k Kind, data []byte) {
	if len(data) > largestBase {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, cached := c.items[key]; cached { // by another reader
		return
	}
	if c.bytes += cap(data); c.bytes > cacheBytes || c.items == nil {
		c.items, c.bytes = map[baseKey]base{}, cap(data)
	}
	c.items[key] = base{k, data}
}

// forget removes the objects of a pack.
func (c *baseCache) forget(of weak.Pointer[pack]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.items, func(key baseKey, b base) bool {
		if key.pack == of {
			c.bytes -= cap(b.data)
		}
		return key.pack == of
	})
}

// The beginnings of the names of files that are being made: a process that was killed leaves them
// behind.
const (
	TempPrefix = "tmp_limpet_"
	packPrefix = "tmp_pack_"
)

const (
	refsFile   = "packed-refs"
	refsHeader = "# pack-refs with: peeled fully-peeled sorted \n"
)

// ReadRefs reads packed-refs: full name -> object.
func ReadRefs(dir string) (map[string]ID, error) {
	data, err := os.ReadFile(filepath.Join(dir, refsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]ID{}, nil
	}
	if err != nil {
		return nil, err
	}
	refs := make(map[string]ID)
	for line := range bytes.Lines(data) {
		if line[0] == '#' || line[0] == '^' {
			continue
		}
		hex, name, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		id, valid := ParseID(hex)
		if !ok || !valid || name == "" {
			return nil, fmt.Errorf("%w: malformed line in %s", ErrDamaged, refsFile)
		}
		refs[name] = id
	}
	return refs, nil
}

// WriteRefs writes packed-refs, which is durable then.
func WriteRefs(dir string, refs map[string]ID) error {
	out := []byte(refsHeader)
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		out = fmt.Appendf(out, "%s %s\n", refs[name], name)
	}
	return atomicfile.Write(filepath.Join(dir, refsFile), 0o600, atomicfile.Data(out))
}
