package agent

import (
	"context"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/worker"
)

const (
	// pruneMirrorsEvery is the interval of the search for unused mirrors.
	pruneMirrorsEvery = time.Hour
	// unusedMirrorAge is how long an unused mirror stays: deleting and recreating a
	// Repository must not cost a clone over a weak link.
	unusedMirrorAge = 24 * time.Hour
)

// pruneMirrors deletes mirrors that no Repository uses, while the cache of
// Repositories is complete.
func (a *Agent) pruneMirrors(ctx context.Context) error {
	tick := time.NewTicker(pruneMirrorsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			a.pruneMirrorsOnce(unusedMirrorAge)
		}
	}
}

func (a *Agent) pruneMirrorsOnce(minAge time.Duration) {
	if !a.repos.HasSynced() || a.repos.LastError() != nil {
		return
	}
	var keep []git.Remote
	for _, u := range a.repos.List() {
		repo, err := api.RepositoryView(u)
		if err != nil { // its mirror is unknown
			return
		}
		if url, ok := worker.CloneURL(repo); ok {
			keep = append(keep, git.Remote{URL: url})
		}
	}
	removed, err := a.mirrors.Prune(keep, minAge)
	if err != nil {
		a.log.Warn("delete unused mirrors", "err", err)
	}
	if removed > 0 {
		a.log.Info("unused mirrors deleted", "count", removed)
	}
}
