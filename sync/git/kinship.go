package git

import (
	"context"
	"errors"
)

// kinship is how a commit stands to another one, as far as the commits that are in a
// mirror tell.
type kinship int

const (
	kinUnknown kinship = iota // more of the history has to be fetched
	kinAhead                  // the other is itself or among the commits before it
	kinBehind                 // it is among the commits before the other
	kinApart                  // neither
	kinLacking                // it is not ahead; the history of the other is too short to tell more
	kinRevives                // it is ahead, and of another that was taken back
)

// kinship tells how tip stands to other. Each commit names its parents by hash, those
// too that were left out.
func (s *store) kinship(ctx context.Context, tip, other objectID) (kinship, error) {
	before := map[objectID]bool{} // other and what is before it
	whole, err := s.history(ctx, other, func(id objectID) bool {
		before[id] = true
		return true
	})
	if err != nil {
		return kinUnknown, err
	}
	if tip != other && before[tip] {
		return kinBehind, nil
	}
	ahead, meets := false, false
	// What is before other has not got other before it, so nothing is looked for there.
	closed, err := s.history(ctx, tip, func(id objectID) bool {
		ahead = ahead || id == other
		meets = meets || before[id]
		return !before[id] && !ahead
	})
	switch {
	case err != nil:
		return kinUnknown, err
	case ahead:
		return kinAhead, nil
	case !closed:
		return kinUnknown, nil
	case meets || whole:
		return kinApart, nil
	}
	return kinLacking, nil
}

// history shows the hashes of tip and of the commits before it, each once, with those
// that are named and not here. enter says whether to go on to the parents of one.
// whole says that all those that were entered are here with their parents.
func (s *store) history(ctx context.Context, tip objectID, enter func(objectID) bool) (whole bool, err error) {
	whole = true
	queue, met := []objectID{tip}, map[objectID]bool{tip: true}
	for n := 0; len(queue) > 0; n++ {
		if n&0x3ff == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		id := queue[0]
		queue = queue[1:]
		if !enter(id) {
			continue
		}
		data, err := s.readKind(id, commitKind, s.limit)
		if errors.Is(err, errMissing) {
			whole = false
			continue
		}
		if err != nil {
			return false, err
		}
		c, err := parseCommit(data)
		if err != nil {
			return false, err
		}
		for _, p := range c.parents {
			if !met[p] {
				met[p] = true
				queue = append(queue, p)
			}
		}
	}
	return whole, nil
}

// Contains says whether a commit is tip or among the commits before it, of which tip has
// to be in the mirror. When the history here is too short to tell, more of it is
// fetched, as for a pinned commit: 50, 500 and then all commits of the branch, within
// the limits. A history that is longer than those does not contain it. It blocks as
// Fetch does.
func (m *Mirrors) Contains(ctx context.Context, r Remote, tip Ref, commit string) (bool, error) {
	var found, whole bool
	err := m.read(ctx, "look for commit", r, func(v *reading) error {
		id, known := parseID(commit)
		from, _, err := v.commit(tip.Hash)
		if err != nil || !known {
			return err
		}
		found = false
		whole, err = v.store.history(v.ctx, from, func(at objectID) bool {
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
