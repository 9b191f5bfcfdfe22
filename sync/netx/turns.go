package netx

import "sync"

// Turns bounds how many callers of one kind wait for hosts at once: one host does not get all of
// them, and those that did not answer last share half. It is safe for concurrent use.
type Turns struct {
	most, perHost int
	silent        func(host string) bool // reports whether a host did not answer last; nil = none

	mu    sync.Mutex     // guards turns
	taken map[string]int // by host; never more than most in all
}

// NewTurns returns turns for most callers. silent must not block; nil stands for hosts that all
// answer.
func NewTurns(most, perHost int, silent func(host string) bool) *Turns {
	return &Turns{most: most, perHost: perHost, silent: silent, taken: map[string]int{}}
}

// Enter takes a turn at a host; leave must follow. It never blocks: ok is false where enough
// callers wait.
func (t *Turns) Enter(host string) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, silent := 0, 0
	for h, n := range t.taken {
		all += n
		if t.silent != nil && t.silent(h) {
			silent += n
		}
	}
	isSilent := t.silent != nil && t.silent(host)
	if all >= t.most || t.taken[host] >= t.perHost || isSilent && silent >= max(1, t.most/2) {
		return nil, false
	}
	t.taken[host]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.taken[host]--; t.taken[host] == 0 {
			delete(t.taken, host)
		}
	}, true
}
