package signature

import (
	"container/list"
	"sync"
)

// Bounds of a Cache.
const (
	maxKept      = 1024    // sets of files
	maxKeptBytes = 4 << 20 // of the files; what is made of them has up to three times as much
)

// Cache reads keys once for as long as their files are the same, also those that
// cannot be read. What was not asked for longest goes first. Safe for concurrent use;
// the zero Cache is empty.
type Cache struct {
	mu    sync.Mutex // guards what follows
	by    map[string]*list.Element
	order list.List // of *kept, the last that was asked for in front
	size  int       // of the files
}

// kept is what was made of a set of files.
type kept struct {
	digest string
	size   int
	once   sync.Once // one reads, others wait
	keys   *Keys
	err    error
}

// Keys is as ParseKeys.
func (c *Cache) Keys(files map[string][]byte, place string) (*Keys, error) {
	k := c.take(digestOf(files), files)
	k.once.Do(func() { k.keys, k.err = parse(files) })
	if k.err != nil {
		return nil, k.err
	}
	found := *k.keys
	found.place, found.digest = place, k.digest
	return &found, nil
}

// take is the place of files with a digest.
func (c *Cache) take(digest string, files map[string][]byte) *kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[digest]; at != nil {
		c.order.MoveToFront(at)
		return at.Value.(*kept)
	}
	k := &kept{digest: digest}
	for name, data := range files {
		k.size += len(name) + len(data)
	}
	if c.by == nil {
		c.by = map[string]*list.Element{}
	}
	c.by[digest] = c.order.PushFront(k)
	c.size += k.size
	for c.order.Len() > maxKept || c.size > maxKeptBytes && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(*kept)
		c.size -= last.size
		delete(c.by, last.digest)
	}
	return k
}
