package pack

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"limpet/sync/git/giterr"
)

// Store is the open packs of one mirror. It is immutable and safe for
// concurrent use; a fetch makes a new one. Every object is checked against its
// name before it is given out.
type Store struct {
	Packs []*pack // newest first
	Limit int64   // bytes of any one object
	cache *baseCache
}

// Open opens all packs below dir/objects/pack.
func Open(dir string, limit int64) (*Store, error) {
	packDir := filepath.Join(dir, "objects", "pack")
	names, err := packNames(packDir)
	if err != nil {
		return nil, err
	}
	s := &Store{Limit: limit, cache: newBaseCache()}
	var ages []int64
	for _, name := range names {
		p, err := openPack(packDir, name)
		if err != nil {
			s.Close()
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("%w: pack %.8s is gone", ErrDamaged, name)
			}
			return nil, err
		}
		age := int64(0)
		if info, err := p.data.Stat(); err == nil {
			age = info.ModTime().UnixNano()
		}
		at, _ := slices.BinarySearchFunc(ages, age, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
		ages = slices.Insert(ages, at, age)
		s.Packs = slices.Insert(s.Packs, at, p)
	}
	return s, nil
}

func (s *Store) Close() {
	for _, p := range s.Packs {
		p.close()
	}
}

// Bytes is the size of all packs.
func (s *Store) Bytes() (n int64) {
	for _, p := range s.Packs {
		n += p.size
	}
	return n
}

func (s *Store) find(id ID) (*pack, int64, error) {
	for _, p := range s.Packs {
		at, err := p.find(id)
		if err != nil || at >= 0 {
			return p, at, err
		}
	}
	return nil, -1, fmt.Errorf("%w: %s", ErrMissing, id)
}

// Has reports whether an object is there, without reading it.
func (s *Store) Has(id ID) (bool, error) {
	_, _, err := s.find(id)
	if errors.Is(err, ErrMissing) {
		return false, nil
	}
	return err == nil, err
}

// Read returns an object of at most limit bytes and its kind. The bytes are the
// caller's. Errors wrap ErrMissing or ErrDamaged, or are *TooLargeError.
func (s *Store) Read(id ID, limit int64) (Kind, []byte, error) {
	p, at, err := s.find(id)
	if err != nil {
		return 0, nil, err
	}
	k, data, err := s.at(p, at, min(limit, s.Limit))
	if err != nil {
		return 0, nil, fmt.Errorf("object %s: %w", id, err)
	}
	if IDOf(k, data) != id {
		return 0, nil, fmt.Errorf("%w: object %s has other content", ErrDamaged, id)
	}
	return k, data, nil
}

// ReadKind is read for an object that has to be of one kind.
func (s *Store) ReadKind(id ID, want Kind, limit int64) ([]byte, error) {
	k, data, err := s.Read(id, limit)
	if err == nil && k != want {
		err = fmt.Errorf("object %s is a %s, not a %s", id, k, want)
	}
	return data, err
}

// at reads the object at an offset: down the chain of deltas to something
// whole, then up again.
func (s *Store) at(p *pack, offset, limit int64) (Kind, []byte, error) {
	type link struct {
		offset int64
		delta  []byte
	}
	var chain []link
	damaged := func(err error) error {
		if _, large := errors.AsType[*giterr.TooLargeError](err); large {
			return err
		}
		return fmt.Errorf("%w: pack %.8s: %w", ErrDamaged, p.name, err)
	}
	var k Kind
	var data []byte
	for {
		var cached bool
		if k, data, cached = s.cache.get(p, offset); cached {
			if len(chain) == 0 {
				if int64(len(data)) > limit {
					return 0, nil, &giterr.TooLargeError{What: "object", Size: int64(len(data)), Limit: limit}
				}
				return k, slices.Clone(data), nil
			}
			break
		}
		h, err := p.header(offset)
		if err != nil {
			return 0, nil, err
		}
		isDelta := h.kind == OfsDeltaKind || h.kind == RefDeltaKind
		if most := s.Limit; h.size > most || !isDelta && len(chain) == 0 && h.size > limit {
			if len(chain) == 0 && !isDelta {
				most = limit
			}
			return 0, nil, &giterr.TooLargeError{What: "object", Size: h.size, Limit: most}
		}
		content, err := inflateAt(p.data, h.at, h.size)
		if err != nil {
			return 0, nil, damaged(err)
		}
		if !isDelta {
			k, data = h.kind, content
			if len(chain) > 0 {
				s.cache.put(p, offset, k, data)
			}
			break
		}
		if _, size, _, err := deltaSizes(content); err != nil {
			return 0, nil, damaged(err)
		} else if len(chain) == 0 && size > limit {
			return 0, nil, &giterr.TooLargeError{What: "object", Size: size, Limit: limit}
		}
		chain = append(chain, link{offset, content})
		if len(chain) > maxChain {
			return 0, nil, damaged(errors.New("delta chain is cyclic"))
		}
		if offset = h.base; h.kind == RefDeltaKind {
			if offset, err = p.find(h.name); err == nil && offset < 0 {
				err = errors.New("a delta's base is missing")
			}
			if err != nil {
				return 0, nil, damaged(err)
			}
		}
	}
	for i := len(chain) - 1; i >= 0; i-- {
		next, err := applyDelta(nil, data, chain[i].delta, s.Limit)
		if err != nil {
			return 0, nil, damaged(err)
		}
		if data = next; i > 0 {
			s.cache.put(p, chain[i].offset, k, data)
		}
	}
	return k, data, nil
}

// Size tells the kind-independent size of an object without inflating it.
func (s *Store) Size(id ID) (int64, error) {
	p, at, err := s.find(id)
	if err != nil {
		return 0, err
	}
	h, err := p.header(at)
	if err != nil || h.kind != OfsDeltaKind && h.kind != RefDeltaKind {
		return h.size, err
	}
	head, err := inflateHead(p.data, h.at, min(h.size, 20))
	if err == nil {
		_, h.size, _, err = deltaSizes(head)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: pack %.8s: %w", ErrDamaged, p.name, err)
	}
	return h.size, nil
}

// baseCache keeps objects that deltas were built on, the least recently used
// leave first. The slices in it are shared and must not be changed.
type baseCache struct {
	mu    sync.Mutex // guards all below
	order *list.List // front = used last
	items map[baseKey]*list.Element
	bytes int
}

type baseKey struct {
	pack   *pack
	offset int64
}

type base struct {
	key  baseKey
	kind Kind
	data []byte
}

// cacheBytes bounds the cache of one mirror: more than 16 MiB gained nothing
// when it was measured. largestBase keeps one object from emptying it.
const (
	cacheBytes  = 12 << 20
	largestBase = 1 << 20
)

func newBaseCache() *baseCache {
	return &baseCache{order: list.New(), items: make(map[baseKey]*list.Element)}
}

func (c *baseCache) get(p *pack, offset int64) (Kind, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[baseKey{p, offset}]
	if !ok {
		return 0, nil, false
	}
	c.order.MoveToFront(e)
	b := e.Value.(*base)
	return b.kind, b.data, true
}

func (c *baseCache) put(p *pack, offset int64, k Kind, data []byte) {
	if len(data) > largestBase {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := baseKey{p, offset}
	if _, there := c.items[key]; there {
		return
	}
	c.items[key] = c.order.PushFront(&base{key, k, data})
	for c.bytes += len(data); c.bytes > cacheBytes; {
		last := c.order.Back()
		b := c.order.Remove(last).(*base)
		delete(c.items, b.key)
		c.bytes -= len(b.data)
	}
}
