package target

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A pull of many objects makes garbage fast, and the heap of an agent is small: it would be collected
// for each few megabytes. While one writes, more are left, unless the heap is large.

// restPercent is by how much the heap grows before it is collected while nothing is written; main
// sets it too. During a write it grows by spareHeap, if that is more.
const (
	restPercent = 50
	spareHeap   = 20 << 20 // bytes
	spareLook   = 200 * time.Millisecond
)

// Garbage is what is collected less often while pulls write.
type Garbage struct {
	mu    sync.Mutex // guards pulls
	pulls int        // that write
}

// Leave leaves more until done, which waits for it. It follows the size of the heap.
func (g *Garbage) Leave(ctx context.Context) (done func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	g.mu.Lock()
	g.pulls++
	g.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for ctx.Err() == nil {
			metrics.Read(live)
			debug.SetGCPercent(gcPercent(live[0].Value.Uint64()))
			select {
			case <-ctx.Done():
			case <-time.After(spareLook):
			}
		}
	})
	return func() {
		stop()
		looking.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.pulls--; g.pulls == 0 {
			debug.SetGCPercent(restPercent)
		}
	}
}

// gcPercent returns by how much a heap grows during a write before it is collected.
func gcPercent(live uint64) int { return int(max(restPercent, 100*spareHeap/max(live, spareHeap/4))) }
