package git

import (
	"context"

	"limpet/sync/git/pack"
)

// Contains reports whether a commit is tip or among the commits before it. The tip has to
// be in the mirror. When the history there is too short to tell, more of it is fetched, as
// for a pinned commit: 50, 500 and then all commits of the branch, within the limits. A
// history that is longer than those does not contain it. It blocks as Fetch does.
func (m *Mirrors) Contains(ctx context.Context, r Remote, tip Ref, commit string) (bool, error) {
	var found, whole bool
	err := m.read(ctx, "look for commit", r, func(v *reading) error {
		id, known := pack.ParseID(commit)
		from, _, err := v.commit(tip.Hash)
		if err != nil || !known {
			return err
		}
		found = false
		_, whole, err = v.store.History(v.ctx, from, func(at pack.ID) bool {
			found = found || at == id
			return !found
		})
		return err
	})
	if err != nil || found || whole {
		return found, err
	}
	_, err = m.Fetch(ctx, r, Ref{Name: tip.Name, Hash: commit, Pinned: true})
	if kind := KindOf(err); kind == CommitNotFound || kind == TooLarge {
		return false, nil
	}
	return err == nil, err
}
