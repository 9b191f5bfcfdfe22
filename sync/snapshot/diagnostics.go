package snapshot

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/text"
)

// DiagnosticsReport describes local storage and the health of outgoing connections. It is
// expensive, so it is built on request.
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
	Sources     source.Watchers
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
	s.DiskFree, s.DiskSize = DiskSpace(filepath.Dir(info.Path))
	return DiagnosticsReport{At: time.Now().Round(0), Store: s}, err
}
