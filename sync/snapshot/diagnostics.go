package snapshot

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/text"
)

// DiagnosticsReport describes local storage and the health of outgoing connections. It is expensive, so it is built on
// request.
type DiagnosticsReport struct {
	At      time.Time `json:"at"`
	Store   Store     `json:"store"`
	Mirrors Mirrors   `json:"mirrors"`
	Watches []Watch   `json:"watches"`
	Tokens  []Tokens  `json:"tokens,omitempty"` // only providers in use
}

// Store describes the state file and its disk.
type Store struct {
	state.Info
	DiskFree int64 `json:"diskFree"` // -1 = unknown
	DiskSize int64 `json:"diskSize"`
}

// Mirrors describes the Git mirrors on this host.
type Mirrors struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"` // on disk, Git LFS objects included
}

// Watch is the watch of one kind of object.
type Watch struct {
	Kind    string `json:"kind"`
	Synced  bool   `json:"synced"`
	Objects int    `json:"objects"`
	Error   string `json:"error,omitempty"` // of the last request; "" when it succeeded
}

// Tokens is the token cache of one identity provider.
type Tokens struct {
	Provider string `json:"provider"`
	auth.TokenCounts
}

// Diagnostics are the parts that a DiagnosticsReport reads.
type Diagnostics struct {
	Store   *state.Store
	Mirrors interface {
		Usage(ctx context.Context) (count int, bytes int64, err error)
	}
	Jobs, Repos *kube.Informer
	Connections *kube.Informer // nil where this agent has no controllers
	Sources     *source.Watcher
	Tokens      func() map[string]auth.TokenCounts // by provider
}

// Read returns the current diagnostics. It sends no requests.
func (d *Diagnostics) Read(ctx context.Context) (DiagnosticsReport, error) {
	c, err := StoreDiagnostics(ctx, d.Store)
	if err != nil {
		return DiagnosticsReport{}, err
	}
	if c.Mirrors.Count, c.Mirrors.Bytes, err = d.Mirrors.Usage(ctx); err != nil {
		return DiagnosticsReport{}, err
	}
	for _, w := range []struct {
		kind     string
		informer *kube.Informer
	}{{"jobs", d.Jobs}, {"repositories", d.Repos}, {"connections", d.Connections}} {
		if w.informer == nil {
			continue
		}
		row := Watch{Kind: w.kind, Synced: w.informer.HasSynced(), Objects: len(w.informer.Objects())}
		if err := w.informer.LastError(); err != nil {
			row.Error = text.Redact(err.Error())
		}
		c.Watches = append(c.Watches, row)
	}
	if synced, objects, problem, on := d.Sources.Watch(); on {
		c.Watches = append(c.Watches, Watch{Kind: "sources", Synced: synced, Objects: objects, Error: problem})
	}
	counts := d.Tokens()
	for _, provider := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[provider]; n.Hits+n.Minted+n.Failed > 0 {
			c.Tokens = append(c.Tokens, Tokens{provider, n})
		}
	}
	return c, nil
}

// StoreDiagnostics returns the diagnostics of a state file without an agent.
func StoreDiagnostics(ctx context.Context, store interface {
	Info(ctx context.Context) (state.Info, error)
}) (DiagnosticsReport, error) {
	info, err := store.Info(ctx)
	s := Store{Info: info}
	s.DiskFree, s.DiskSize = diskSpace(filepath.Dir(info.Path))
	return DiagnosticsReport{At: time.Now().Round(0), Store: s}, err
}

// cpuSpan is the least time that a share of the processor is measured.
const cpuSpan = 10 * time.Second

// cpuUsage measures how much of a processor this process takes.
type cpuUsage struct {
	at   time.Time
	used time.Duration
	last float64 // the share of the last span; 0 = none
}

// share returns the part of one processor used in the last span, in percent rounded to a tenth. A smaller value is
// 0.05, because 0 means unknown. used is the processor time of the process so far.
func (c *cpuUsage) share(now time.Time, used time.Duration) float64 {
	switch span := now.Sub(c.at); {
	case c.at.IsZero() || span < 0 || used < c.used:
		c.at, c.used = now, used
	case span >= cpuSpan:
		c.last = max(math.Round(float64(used-c.used)/float64(span)*1000)/10, 0.05)
		c.at, c.used = now, used
	}
	return c.last
}

// processorTime returns the processor time of this process so far.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // fails only for another first argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentBytes returns the resident memory of this process, 0 when unknown. Source: proc(5), statm, in pages.
func residentBytes() int64 {
	var total, resident int64
	data, _ := os.ReadFile("/proc/self/statm")
	if _, err := fmt.Sscan(string(data), &total, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// diskSpace returns the free bytes and the size of the disk of a directory, -1 where they cannot be read.
func diskSpace(dir string) (free, size int64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1, -1
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize)
}

// releaseMemory gives unused heap back to the system, and the pages of the program file that the start and a burst of
// work have mapped: of 34 MiB an idle agent uses a few. The page cache keeps what it has memory for, so that a later call
// maps its code again without a read from disk.
func releaseMemory() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var mode string
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %4s", &from, &to, &mode)
		// Pages that may be written are not those of the file any more.
		if err != nil || mode[1] == 'w' || !strings.HasSuffix(lines.Text(), " "+exe) {
			continue
		}
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
	}
}
