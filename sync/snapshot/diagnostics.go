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

// Diagnostics reads the local storage of an agent and the health of its connections.
// It is expensive, so it runs on request.
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
		if w.informer != nil {
			c.Watches = append(c.Watches, watchRow(w.kind, w.informer))
		}
	}
	if synced, objects, problem, on := d.Sources.Watch(); on {
		c.Watches = append(c.Watches, Watch{Kind: "sources", Synced: synced, Objects: objects, Error: problem})
	}
	counts := d.Tokens()
	for _, provider := range slices.Sorted(maps.Keys(counts)) {
		n := counts[provider]
		if n.Hits+n.Minted+n.Failed == 0 {
			continue
		}
		c.Tokens = append(c.Tokens, Tokens{
			Provider: provider,
			Held:     n.Held,
			Oldest:   n.Oldest,
			Hits:     n.Hits,
			Minted:   n.Minted,
			Failed:   n.Failed,
			Refused:  n.Refused,
		})
	}
	return c, nil
}

func watchRow(kind string, informer *kube.Informer) Watch {
	w := Watch{Kind: kind, Synced: informer.HasSynced(), Objects: len(informer.Objects())}
	if err := informer.LastError(); err != nil {
		w.Error = text.Redact(err.Error())
	}
	return w
}

// StoreDiagnostics returns the diagnostics of a state file without an agent.
func StoreDiagnostics(ctx context.Context, store interface {
	Info(ctx context.Context) (state.Info, error)
}) (DiagnosticsReport, error) {
	info, err := store.Info(ctx)
	if err != nil {
		return DiagnosticsReport{}, err
	}
	s := Store{
		Path:         info.Path,
		Bytes:        info.Bytes,
		FreeBytes:    info.FreeBytes,
		History:      info.History,
		HistoryBytes: info.HistoryBytes,
		Oldest:       info.Oldest,
		Claims:       info.Claims,
		Resting:      info.Resting,
		Objects:      info.Objects,
		Secrets:      info.Secrets,
	}
	s.DiskFree, s.DiskSize = diskSpace(filepath.Dir(info.Path))
	return DiagnosticsReport{At: time.Now().Round(0), Store: s}, nil
}
