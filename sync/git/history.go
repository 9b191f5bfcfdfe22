package git

import (
	"context"
	"errors"
)

// history calls visit with the hash of tip and of each commit before it, once each, those
// included that a commit names and that are not in the store. visit reports whether to go
// on to the parents. whole reports that every visited commit was there; n counts them.
func (s *store) history(ctx context.Context, tip objectID, visit func(objectID) bool) (n int, whole bool, err error) {
	whole = true
	queue, met := []objectID{tip}, map[objectID]bool{tip: true}
	for len(queue) > 0 {
		if n&0x3ff == 0 && ctx.Err() != nil {
			return n, false, context.Cause(ctx)
		}
		id := queue[0]
		queue = queue[1:]
		if !visit(id) {
			continue
		}
		data, err := s.readKind(id, commitKind, s.limit)
		if errors.Is(err, errMissing) {
			whole = false
			continue
		}
		if err != nil {
			return n, false, err
		}
		c, err := parseCommit(data)
		if err != nil {
			return n, false, err
		}
		n++
		for _, p := range c.parents {
			if !met[p] {
				met[p] = true
				queue = append(queue, p)
			}
		}
	}
	return n, whole, nil
}

// Contains reports whether a commit is tip or among the commits before it. The tip has to
// be in the mirror. When the history there is too short to tell, more of it is fetched, as
// for a pinned commit: 50, 500 and then all commits of the branch, within the limits. A
// history that is longer than those does not contain it. It blocks as Fetch does.
func (m *Mirrors) Contains(ctx context.Context, r Remote, tip Ref, commit string) (bool, error) {
	var found, whole bool
	err := m.read(ctx, "look for commit", r, func(v *reading) error {
		id, known := parseID(commit)
		from, _, err := v.commit(tip.Hash)
		if err != nil || !known {
			return err
		}
		found = false
		_, whole, err = v.store.history(v.ctx, from, func(at objectID) bool {
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
