package git

import (
	"context"
	"maps"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// What the server of Remote.URL takes back stays taken back: a branch that was set to
// an older commit, or made anew, is often so because something was wrong with it. An
// alternate that still has the commits, also below others, would bring them again
// whenever that server is away. So they are noted until it has them once more: what was
// fetched, and what is known to come before it and not before what is there now. A tag
// or branch that the server has no more is taken back with all that it was.

// withdrawnPrefix begins the names of commits that were under a name and are no longer.
const withdrawnPrefix = ownPrefix + "withdrawn/"

// Bounds: mostWithdrawn of one name, mostGone of names that are deleted, of all of them
// together. Beyond them any one is forgotten.
const (
	mostWithdrawn = 16
	mostGone      = 256
)

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
	if len(f.remote.Servers) == 0 || before == f.id || before.IsZero() && len(withdrawn(refs, f.name)) == 0 {
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
	if before.IsZero() { // it was deleted, and is there again
		return nil
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

// gone takes the names out of refs that the server of the URL has no more, and notes
// what they stood for. has says which it has. It says whether there were any.
func (c *call) gone(refs map[string]objectID, has func(name string) bool) (any bool) {
	var notes []string
	for name := range refs {
		if strings.HasPrefix(name, withdrawnPrefix) {
			notes = append(notes, name)
		}
	}
	for name, id := range refs {
		if strings.HasPrefix(name, ownPrefix) || has(name) {
			continue
		}
		any = true
		delete(refs, name)
		delete(refs, tagNote(name))
		if len(c.remote.Servers) == 0 {
			continue
		}
		if len(notes) >= mostGone {
			delete(refs, notes[0])
			notes = notes[1:]
		}
		note := withdrawnPrefix + id.String() + "/" + name
		notes = append(notes, note)
		refs[note] = id
	}
	return any
}

// notice notes what the server of the URL has deleted, when it is asked for its refs: a
// version that is gone leads to one that is here, and nothing is fetched for that. Where
// the mirror is busy the next look does it.
func (c *call) notice(adv *packp.AdvRefs) {
	if len(c.remote.Servers) == 0 {
		return
	}
	mi := c.m.mirror(c.home)
	select {
	case mi.turn <- struct{}{}:
		defer mi.give()
	default:
		return
	}
	refs, err := readRefs(mi.dir)
	if err != nil { // nothing is here, or it is made anew
		return
	}
	if !c.gone(refs, func(name string) bool { _, ok := adv.References[name]; return ok }) {
		return
	}
	if err := writeRefs(mi.dir, refs); err != nil {
		c.m.log.Warn("what a host has deleted is not noted", "url", c.url(), "err", err)
	}
}

// without leaves out the versions of an alternate that were taken back, so that the one
// before counts.
func (k *knowledge) without(adv *packp.AdvRefs) *packp.AdvRefs {
	still := *adv
	still.References = maps.Clone(adv.References)
	for key := range k.refs {
		at, ok := strings.CutPrefix(key, withdrawnPrefix)
		if _, name, named := strings.Cut(at, "/"); ok && named && strings.HasPrefix(name, tagPrefix) && k.refs[name].IsZero() {
			delete(still.References, name)
		}
	}
	return &still
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
