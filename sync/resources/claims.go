package resources

import "sync"

// claims decides which file an object belongs to when several name it. A file
// that does not change keeps its object; a changed one keeps it as long as its
// new content still names it; among new ones the first of the plan wins. The
// answer does not depend on which file was read first.
type claims struct {
	mu       sync.Mutex          // guards all fields
	owner    map[Identity]string // path that has the object
	reserved map[Identity]string // path that had it and has not been read yet
	had      map[string]Identity // the same by path
	byPath   map[string]Identity // what each file that was read is about
}

func (c *claims) init(p *Plan) {
	c.owner, c.reserved = map[Identity]string{}, map[Identity]string{}
	c.had, c.byPath = map[string]Identity{}, map[string]Identity{}
	for id, path := range p.held {
		c.owner[id] = path
	}
	for _, w := range p.WriteFiles {
		if w.Existing != nil && w.Action != Renamed {
			id := w.Existing.Identity()
			c.reserved[id], c.had[w.Path] = w.Path, id
		}
	}
}

// read reports that the file at path turned out to be about id.
func (c *claims) read(path string, id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(path)
	c.byPath[path] = id
}

// unreadable reports that the file at path is about nothing that can be known. It
// keeps what it had.
func (c *claims) unreadable(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, had := c.had[path]; had {
		c.owner[id] = path
	}
	c.release(path)
}

func (c *claims) release(path string) {
	if id, had := c.had[path]; had && c.reserved[id] == path {
		delete(c.reserved, id)
	}
}

// take gives id to path. wait is true when another file may still need it: ask
// again when all files have been read. other is the path that has it.
func (c *claims) take(path string, id Identity) (other string, wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, taken := c.owner[id]; taken && owner != path {
		return owner, false
	}
	if holder, is := c.reserved[id]; is && holder != path {
		return holder, true
	}
	c.owner[id] = path
	return "", false
}

// taken reports whether a file has id.
func (c *claims) taken(id Identity) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.owner[id]
	return is
}

// about returns what the file at path is about, when it was read.
func (c *claims) about(path string) (Identity, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, known := c.byPath[path]
	return id, known
}
