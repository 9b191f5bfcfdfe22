package worker

import (
	"context"
	"log/slog"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/worker/checkout"
)

const (
	// pruneMirrorsEvery is the interval of the search for unused mirrors.
	pruneMirrorsEvery = time.Hour
	// unusedMirrorAge is how long an unused mirror stays: deleting and recreating a Repository must
	// not cost a clone over a weak link.
	unusedMirrorAge = 24 * time.Hour
)

// MirrorPruner deletes mirrors that no Repository and no source uses, and the lists of unread files
// of those that are gone, while the cache of Repositories is complete.
type MirrorPruner struct {
	Repos   *kube.Informer
	Others  func() (used []git.Remote, known bool) // by other objects; nil = none
	Mirrors *git.Mirrors
	Store   *state.Store
	Logger  *slog.Logger
}

// Run works until ctx ends.
func (p MirrorPruner) Run(ctx context.Context) error {
	for kube.Sleep(ctx, pruneMirrorsEvery) == nil {
		p.runOnce(ctx, unusedMirrorAge)
	}
	return nil
}

func (p MirrorPruner) runOnce(ctx context.Context, minAge time.Duration) {
	if !p.Repos.HasSynced() || p.Repos.LastError() != nil {
		return
	}
	var keep []git.Remote
	if p.Others != nil {
		known := false
		if keep, known = p.Others(); !known {
			return
		}
	}
	uids := map[string]bool{}
	for _, u := range p.Repos.List() {
		uids[string(u.GetUID())] = true
		repo, err := api.RepositoryView(u)
		if err != nil { // its mirror is unknown
			return
		}
		if urls := checkout.URLs(repo); len(urls) > 0 {
			keep = append(keep, git.Remote{URL: urls[0]})
		}
	}
	if err := p.Store.PruneUnread(ctx, uids); err != nil {
		p.Logger.Warn("delete lists of unread files", "err", err)
	}
	removed, err := p.Mirrors.Prune(keep, minAge)
	if err != nil {
		p.Logger.Warn("delete unused mirrors", "err", err)
	}
	if removed > 0 {
		p.Logger.Info("unused mirrors deleted", "count", removed)
	}
}
