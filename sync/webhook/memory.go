package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	rememberFor   = 24 * time.Hour // hosts repeat deliveries for hours; a later copy causes one more pull
	maxRemembered = 10_000         // the oldest make room; each is some 70 bytes in the state file
	forgetBatch   = 16             // how many one write forgets at most
	// memoryPrefix begins the keys of the facts: time in milliseconds, in hex, so
	// that their order is that of time. The value is the digest.
	memoryPrefix = "replay/"
)

// Facts is the part of the state file that keeps the memory.
type Facts interface {
	Facts(ctx context.Context, prefix string) (map[string][]byte, error)
	// ChangeFacts writes and forgets facts in one transaction.
	ChangeFacts(ctx context.Context, put map[string][]byte, forget []string) error
}

// memory knows the deliveries that were served, over restarts.
type memory struct {
	facts Facts

	mu    sync.Mutex // guards what follows
	known map[digest]int64
	order []remembered // the oldest first
	last  int64        // the newest time that was given
}

// remembered is one delivery and when it was served, in milliseconds; no two have the same.
type remembered struct {
	at int64
	digest
}

func (r remembered) key() string { return fmt.Sprintf("%s%012x", memoryPrefix, r.at) }

// loadMemory reads what the state file remembers.
func loadMemory(ctx context.Context, facts Facts) (*memory, error) {
	m := &memory{facts: facts, known: map[digest]int64{}}
	all, err := facts.Facts(ctx, memoryPrefix)
	if err != nil {
		return nil, fmt.Errorf("read the deliveries that were served: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		at, err := strconv.ParseInt(strings.TrimPrefix(key, memoryPrefix), 16, 64)
		if err != nil || len(all[key]) != len(digest{}) {
			continue
		}
		r := remembered{at, digest(all[key])}
		m.known[r.digest], m.order, m.last = r.at, append(m.order, r), r.at
	}
	return m, nil
}

// has reports whether a delivery was served.
func (m *memory) has(d digest, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.known[d]
	return ok && now.Sub(time.UnixMilli(at)) < rememberFor
}

// add remembers a delivery. It is known from now on even when err says that the state file could
// not take it. What is too old or too much goes in the same write, a few at a time.
func (m *memory) add(ctx context.Context, d digest, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = max(m.last+1, now.UnixMilli())
	r := remembered{m.last, d}
	m.known[d], m.order = r.at, append(m.order, r)
	var forget []string
	for i := range min(forgetBatch, len(m.order)-1) {
		if len(m.order)-i <= maxRemembered && now.Sub(time.UnixMilli(m.order[i].at)) < rememberFor {
			break
		}
		forget = append(forget, m.order[i].key())
	}
	err := m.facts.ChangeFacts(ctx, map[string][]byte{r.key(): d[:]}, forget)
	if err != nil {
		err = fmt.Errorf("remember a delivery: %w", err)
		if len(m.order) <= 2*maxRemembered {
			return err
		}
	}
	// After an error a start finds those that stay in the file, and forgets them then.
	for _, old := range m.order[:len(forget)] {
		if m.known[old.digest] == old.at {
			delete(m.known, old.digest)
		}
	}
	m.order = m.order[len(forget):]
	return err
}
