package repos

import (
	"sync"

	"limpet/sync/kube"
)

// census says how many Repositories there are. It counts all of them at the first
// question after one has come or gone: a quota is looked at with each look, and a
// thousand looks at a thousand of them would be a million.
type census struct {
	mu      sync.Mutex // guards what follows
	changes int        // how often one has come or gone
	counted map[string]int64
}

// came makes the next question count anew.
func (c *census) came() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.counted = nil
}

// count counts the Repositories of a namespace that are here to stay. The counting is
// outside of the lock: who changes the picture may wait in came.
func (c *census) count(namespace string, sights func() []kube.Object) int64 {
	c.mu.Lock()
	counted, changes := c.counted, c.changes
	c.mu.Unlock()
	if counted == nil {
		counted = map[string]int64{}
		for _, s := range sights() {
			if s.Unstructured().GetDeletionTimestamp() == nil {
				counted[s.Namespace()]++
			}
		}
		c.mu.Lock()
		if c.changes == changes {
			c.counted = counted
		}
		c.mu.Unlock()
	}
	return counted[namespace]
}
