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
