package git

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// store is the open packs of one mirror. It is immutable and safe for
// concurrent use; a fetch makes a new one. Every object is checked against its
// name before it is given out.
type store struct {
	packs  []*pack // newest first
	limit  int64   // bytes of any one object
	cache  *baseCache
	age    int  // of the mirror when it was opened
	users  int  // guarded by the mirror's mu
	retire bool // guarded by the mirror's mu: close when the last user is gone
}

// openStore opens all packs below dir/objects/pack.
func openStore(dir string, limit int64) (*store, error) {
	packDir := filepath.Join(dir, "objects", "pack")
	names, err := packNames(packDir)
	if err != nil {
		return nil, err
	}
	s := &store{limit: limit, cache: newBaseCache()}
	var ages []int64
	for _, name := range names {
		p, err := openPack(packDir, name)
		if err != nil {
			s.close()
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("%w: pack %.8s is gone", errDamaged, name)
			}
			return nil, err
		}
		age := int64(0)
		if info, err := p.data.Stat(); err == nil {
			age = info.ModTime().UnixNano()
		}
		at, _ := slices.BinarySearchFunc(ages, age, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
		ages = slices.Insert(ages, at, age)
		s.packs = slices.Insert(s.packs, at, p)
	}
	return s, nil
}

func (s *store) close() {
	for _, p := range s.packs {
		p.close()
	}
}

// bytes is the size of all packs.
func (s *store) bytes() (n int64) {
	for _, p := range s.packs {
		n += p.size
	}
	return n
}

func (s *store) find(id objectID) (*pack, int64, error) {
	for _, p := range s.packs {
		at, err := p.find(id)
		if err != nil || at >= 0 {
			return p, at, err
		}
	}
	return nil, -1, fmt.Errorf("%w: %s", errMissing, id)
}

// has tells whether an object is there, without reading it.
func (s *store) has(id objectID) (bool, error) {
	_, _, err := s.find(id)
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil, err
}

// read gives an object of at most limit bytes and its kind. The bytes are the
// caller's. Errors wrap errMissing or errDamaged, or are *TooLargeError.
func (s *store) read(id objectID, limit int64) (kind, []byte, error) {
	p, at, err := s.find(id)
	if err != nil {
		return 0, nil, err
	}
	k, data, err := s.at(p, at, min(limit, s.limit))
	if err != nil {
		return 0, nil, fmt.Errorf("object %s: %w", id, err)
	}
	if nameOf(k, data) != id {
		return 0, nil, fmt.Errorf("%w: object %s has other content", errDamaged, id)
	}
	return k, data, nil
}

// readKind is read for an object that has to be of one kind.
func (s *store) readKind(id objectID, want kind, limit int64) ([]byte, error) {
	k, data, err := s.read(id, limit)
	if err == nil && k != want {
		err = fmt.Errorf("object %s is a %s, not a %s", id, k, want)
	}
	return data, err
}

// at reads the object at an offset: down the chain of deltas to something
// whole, then up again.
func (s *store) at(p *pack, offset, limit int64) (kind, []byte, error) {
	type link struct {
		offset int64
		delta  []byte
	}
	var chain []link
	damaged := func(err error) error {
		if _, large := errors.AsType[*TooLargeError](err); large {
			return err
		}
		return fmt.Errorf("%w: pack %.8s: %w", errDamaged, p.name, err)
	}
	var k kind
	var data []byte
	for {
		var cached bool
		if k, data, cached = s.cache.get(p, offset); cached {
			if len(chain) == 0 {
				if int64(len(data)) > limit {
					return 0, nil, &TooLargeError{What: "object", Size: int64(len(data)), Limit: limit}
				}
				return k, slices.Clone(data), nil
			}
			break
		}
		h, err := p.header(offset)
		if err != nil {
			return 0, nil, err
		}
		isDelta := h.kind == ofsDeltaKind || h.kind == refDeltaKind
		if most := s.limit; h.size > most || !isDelta && len(chain) == 0 && h.size > limit {
			if len(chain) == 0 && !isDelta {
				most = limit
			}
			return 0, nil, &TooLargeError{What: "object", Size: h.size, Limit: most}
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
			return 0, nil, &TooLargeError{What: "object", Size: size, Limit: limit}
		}
		chain = append(chain, link{offset, content})
		if len(chain) > maxChain {
			return 0, nil, damaged(errors.New("a chain of deltas has no end"))
		}
		if offset = h.base; h.kind == refDeltaKind {
			if offset, err = p.find(h.name); err == nil && offset < 0 {
				err = errors.New("a delta's base is missing")
			}
			if err != nil {
				return 0, nil, damaged(err)
			}
		}
	}
	for i := len(chain) - 1; i >= 0; i-- {
		next, err := applyDelta(nil, data, chain[i].delta, s.limit)
		if err != nil {
			return 0, nil, damaged(err)
		}
		if data = next; i > 0 {
			s.cache.put(p, chain[i].offset, k, data)
		}
	}
	return k, data, nil
}

// size tells the kind-independent size of an object without inflating it.
func (s *store) size(id objectID) (int64, error) {
	p, at, err := s.find(id)
	if err != nil {
		return 0, err
	}
	h, err := p.header(at)
	if err != nil || h.kind != ofsDeltaKind && h.kind != refDeltaKind {
		return h.size, err
	}
	head, err := inflateHead(p.data, h.at, min(h.size, 20))
	if err == nil {
		_, h.size, _, err = deltaSizes(head)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: pack %.8s: %w", errDamaged, p.name, err)
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
	kind kind
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

func (c *baseCache) get(p *pack, offset int64) (kind, []byte, bool) {
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

func (c *baseCache) put(p *pack, offset int64, k kind, data []byte) {
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
