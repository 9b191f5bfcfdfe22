// Package garbage decides when garbage is collected. Memory is scarcer than processor time on small
// boards, so the heap grows by half before it is collected, not by its whole. But the heap of an agent
// is small, and would be collected for each few megabytes while it works: more is left then.
package garbage

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Spare is the least growth of the heap between two collections, in bytes, while a work is under way.
type Spare uint64

const (
	Jobs   Spare = 5 << 20  // a job of any kind
	Writes Spare = 20 << 20 // many objects of an API
)

// Growth of the heap before it is collected, in percent of what is used.
const (
	restPercent  = 50
	firstPercent = 200 // of the 4 MiB that the runtime starts with: most commands end before they have them
	step         = 25  // a new value stops the program for a moment
)

// pace is that of the process, as GOGC is.
var pace struct {
	mu      sync.Mutex // guards all below
	limited bool
	percent int
	works   map[Spare]int // that are under way
}

// Limit limits the garbage of this process, unless GOGC does.
func Limit() {
	if os.Getenv("GOGC") != "" {
		return
	}
	pace.mu.Lock()
	defer pace.mu.Unlock()
	pace.limited, pace.percent, pace.works = true, firstPercent, map[Spare]int{}
	debug.SetGCPercent(firstPercent)
	follow()
}

// follow adjusts the growth after each collection.
func follow() {
	runtime.AddCleanup(new([16]byte), func(struct{}) {
		pace.mu.Lock()
		defer pace.mu.Unlock()
		adjust()
		follow()
	}, struct{}{})
}

// Leave leaves more garbage until done, and until the collection after it.
func Leave(s Spare) (done func()) {
	pace.mu.Lock()
	defer pace.mu.Unlock()
	if !pace.limited {
		return func() {}
	}
	if pace.works[s]++; pace.works[s] == 1 {
		adjust()
	}
	return func() {
		pace.mu.Lock()
		defer pace.mu.Unlock()
		pace.works[s]--
	}
}

// adjust sets the growth for what is under way. The caller holds mu.
func adjust() {
	var most Spare
	for spare, works := range pace.works {
		if works > 0 {
			most = max(most, spare)
		}
	}
	used := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(used)
	if percent := growth(used[0].Value.Uint64(), uint64(most)); percent != pace.percent {
		pace.percent = percent
		debug.SetGCPercent(percent)
	}
}

// growth returns by how much a heap grows before it is collected.
func growth(used, least uint64) int {
	percent := int(100 * least / max(used, least/4, 1))
	return max(restPercent, percent-percent%step)
}
