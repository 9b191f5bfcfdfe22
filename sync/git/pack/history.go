package pack

import (
	"context"
	"errors"
)

// History calls visit with the hash of tip and of each commit before it, once each, those
// included that a commit names and that are not in the store. visit reports whether to go
// on to the parents. whole reports that every visited commit was there; n counts them.
func (s *Store) History(ctx context.Context, tip ID, visit func(ID) bool) (n int, whole bool, err error) {
	whole = true
	queue, met := []ID{tip}, map[ID]bool{tip: true}
	for len(queue) > 0 {
		if n&0x3ff == 0 && ctx.Err() != nil {
			return n, false, context.Cause(ctx)
		}
		id := queue[0]
		queue = queue[1:]
		if !visit(id) {
			continue
		}
		data, err := s.ReadKind(id, CommitKind, s.Limit)
		if errors.Is(err, ErrMissing) {
			whole = false
			continue
		}
		if err != nil {
			return n, false, err
		}
		c, err := ParseCommit(data)
		if err != nil {
			return n, false, err
		}
		n++
		for _, p := range c.Parents {
			if !met[p] {
				met[p] = true
				queue = append(queue, p)
			}
		}
	}
	return n, whole, nil
}
