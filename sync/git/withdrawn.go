package git

import (
	"context"
	"strings"
)

// What the server of Remote.URL takes back stays taken back: a branch that was set to
// an older commit, or made anew, is often so because something was wrong with it. An
// alternate that still has the commits, also below others, would bring them again
// whenever that server is away. So they are noted until it has them once more: what was
// fetched, and what is known to come before it and not before what is there now.

// withdrawnPrefix begins the names of commits that were under a name and are no longer.
const withdrawnPrefix = ownPrefix + "withdrawn/"

// mostWithdrawn bounds them for one name. Beyond it any one is forgotten.
const mostWithdrawn = 16

// withdrawn are the commits that were taken back from a name, by their own names.
func withdrawn(refs map[string]objectID, name string) map[string]objectID {
	out := map[string]objectID{}
	for key, id := range refs {
		if at, ok := strings.CutPrefix(key, withdrawnPrefix); ok && at == id.String()+"/"+name {
			out[key] = id
		}
	}
	return out
}

// withdraw notes what the server of the URL takes back with what was fetched, and
// forgets what it has again. A server without alternates takes nothing back: there is
// nobody to bring it, or it is an alternate itself. before is what was under the name.
func (f *fetch) withdraw(dir string, refs map[string]objectID, before objectID) error {
	if len(f.remote.Servers) == 0 || before.IsZero() || before == f.id {
		return nil
	}
	s, err := openStore(dir, f.limits.ObjectBytes)
	if err != nil {
		return err
	}
	defer s.close()
	known := withdrawn(refs, f.name)
	for key, id := range known {
		kin, err := s.kinship(f.ctx, f.id, id)
		if err != nil {
			return err
		}
		if kin == kinAhead {
			delete(refs, key)
			delete(known, key)
		}
	}
	// Where too little of the history is here to tell, it is noted too: what comes after
	// the new commit alone is taken all the same.
	if kin, err := s.kinship(f.ctx, f.id, before); err != nil || kin == kinAhead {
		return err
	}
	for key := range known {
		if len(known) >= mostWithdrawn {
			delete(refs, key)
			delete(known, key)
		}
	}
	refs[withdrawnPrefix+before.String()+"/"+f.name] = before
	return nil
}

// revives says whether tip brings something that was taken back from a name. open says
// that more of its history has to be fetched to tell.
func (s *store) revives(ctx context.Context, refs map[string]objectID, name string, tip objectID) (commit objectID, open bool, err error) {
	taken := withdrawn(refs, name)
	if len(taken) == 0 {
		return objectID{}, false, nil
	}
	own := map[objectID]bool{}
	if _, err := s.history(ctx, refs[name], func(id objectID) bool {
		own[id] = true
		return true
	}); err != nil {
		return objectID{}, false, err
	}
	gone := map[objectID]bool{}
	for _, id := range taken {
		if _, err := s.history(ctx, id, func(id objectID) bool {
			if !own[id] {
				gone[id] = true
			}
			return !own[id]
		}); err != nil {
			return objectID{}, false, err
		}
	}
	whole, err := s.history(ctx, tip, func(id objectID) bool {
		if gone[id] && commit.IsZero() {
			commit = id
		}
		return !own[id] && commit.IsZero()
	})
	return commit, err == nil && !whole && commit.IsZero(), err
}
