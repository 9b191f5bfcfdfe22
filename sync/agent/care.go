package agent

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"limpet/state"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// Care implements socket.Agent: it reads the sizes of the state file and of the
// mirrors, and asks nobody outside of this host.
func (a *Agent) Care(ctx context.Context) (snapshot.Care, error) {
	c, err := CareOf(ctx, a.cfg.Store)
	if err != nil {
		return snapshot.Care{}, err
	}
	if c.Mirrors.Count, c.Mirrors.Bytes, err = a.mirrors.Usage(ctx); err != nil {
		return snapshot.Care{}, err
	}
	for _, w := range []struct {
		kind string
		inf  *kube.Informer
	}{{"jobs", a.jobs}, {"repositories", a.repos}, {"connections", a.linked}} {
		if w.inf == nil {
			continue
		}
		seen := snapshot.Watch{Kind: w.kind, Synced: w.inf.HasSynced(), Objects: len(w.inf.Objects())}
		if err := w.inf.LastError(); err != nil {
			seen.Error = text.Redact(err.Error())
		}
		c.Watches = append(c.Watches, seen)
	}
	c.Watches = append(c.Watches, a.sourcesWatch()...)
	counts := a.countTokens()
	for _, provider := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[provider]; n.Hits+n.Minted+n.Failed > 0 {
			c.Tokens = append(c.Tokens, snapshot.Tokens{Provider: provider, Held: n.Held, Oldest: n.Oldest, Hits: n.Hits, Minted: n.Minted, Failed: n.Failed, Refused: n.Refused})
		}
	}
	return c, nil
}

// CareOf is what there is to tell of a state file that no agent works on.
func CareOf(ctx context.Context, store *state.Store) (snapshot.Care, error) {
	info, err := store.Info(ctx)
	if err != nil {
		return snapshot.Care{}, err
	}
	c := snapshot.Care{At: time.Now().Round(0), Store: snapshot.Store{Path: info.Path, Bytes: info.Bytes, FreeBytes: info.FreeBytes, History: info.History, HistoryBytes: info.HistoryBytes,
		Oldest: info.Oldest, Claims: info.Claims, Resting: info.Resting, Objects: info.Objects, Secrets: info.Secrets}}
	c.Store.DiskFree, c.Store.DiskSize = diskRoom(filepath.Dir(info.Path))
	return c, nil
}
