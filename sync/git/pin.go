package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// A commit that is asked for by its hash does not change, so it is fetched once, without its
// history: servers that say that they allow it give it out, and so do those over http. One that a
// ref points to is had from any server. Else, and where it has to be on a branch, the commits of
// that branch or of the default one are fetched until it is among them. That it was found is noted
// in the mirror, under a name that no server can take away.

// pinPrefix begins the names of the notes: hash, then full name of the branch.
const pinPrefix = ownPrefix + "pinned/"

// growth is how many commits of a branch are fetched, step by step. The last is git's own number
// for all of them.
var growth = []int{50, 500, 0x7fffffff}

func pinName(commit, branch string) string { return pinPrefix + commit + "/" + branch }

// stored reports whether a pinned commit is in the mirror and was seen on its branch. No server is
// asked.
func (c *call) stored(ref Ref) bool {
	id, ok := pack.ParseID(ref.Hash)
	f := c.newFetch(id)
	if ref.Name != ref.Hash {
		f.name = ref.Name
	}
	here, err := f.hasPinned()
	return ok && here && err == nil
}

// hasPinned is stored for a fetch. The error is one of the mirror, or Refused for what is there and
// no commit.
func (f *fetch) hasPinned() (bool, error) {
	if f.mirror.isDamaged() {
		return false, nil
	}
	s, err := f.mirror.use(f.exchange.Limits.ObjectBytes)
	if err != nil {
		return false, err
	}
	defer f.mirror.release(s)
	if !s.store.Has(f.id) {
		return false, nil
	}
	switch k, _, err := s.store.Read(f.id, s.store.Limit); {
	case err != nil:
		return false, err
	case k != pack.CommitKind:
		return false, &Error{Kind: Refused, Err: fmt.Errorf("%s is not the hash of a commit", f.id),
			Hint: "of a tag give the commit that it points to"}
	case f.name == "":
		return true, nil
	}
	refs, err := pack.ReadRefs(f.mirror.dir)
	_, noted := refs[pinName(f.id.String(), f.name)]
	return noted, err
}

// fetchPinned fetches a pinned commit. The caller has the mirror's turn.
func (f *fetch) fetchPinned() error {
	if here, err := f.hasPinned(); here && err == nil {
		return nil
	}
	l, err := f.call.peekRefs(func() (*transport.Listing, error) { return f.call.listRefs() })
	if err != nil {
		return err
	}
	if f.name != "" {
		refs, err := choose(f.exchange.Ctx, l.Refs, gitref.Branch(f.name))
		if err != nil {
			return err
		}
		tip, _ := pack.ParseID(refs[0].Hash)
		return f.search(refs[0].Name, tip)
	}
	served := serves(l, f.id, f.exchange.Addr.Scheme)
	for name, target := range l.Refs.Peeled { // an annotated tag brings its commit with it
		if target == f.id && !served {
			f.tag = l.Refs.References[name]
		}
	}
	if served || !f.tag.IsZero() {
		err := f.run()
		if err == nil {
			_, err = f.hasPinned()
		}
		if err == nil || f.exchange.Classify(err).Kind != Moved {
			return err
		}
	}
	branch := defaultBranch(l.Refs)
	if tip, ok := l.Refs.References[branch]; ok {
		return f.search(branch, tip)
	}
	return f.notFound("the repository has no branches")
}

// serves reports whether the server may send a commit without its history.
func serves(l *transport.Listing, id pack.ID, scheme string) bool {
	caps := l.Refs.Capabilities
	if scheme != "ssh" || caps.Supports(capability.AllowTipSHA1InWant) || caps.Supports(capability.AllowReachableSHA1InWant) {
		return true
	}
	return slices.Contains(slices.Collect(maps.Values(l.Refs.References)), id)
}

// search fetches more and more of a branch until the commit is among its commits. A fallback may
// put any commit on a branch, so that one has to contain the commit that was synced last.
func (f *fetch) search(branch string, tip pack.ID) error {
	name := branch
	if f.call.fallback {
		name = ""
	}
	seen, err := f.deepen(tip, name, f.id)
	if large, ok := errors.AsType[*TooLargeError](err); ok {
		return &Error{Kind: TooLarge, Hint: "the limits protect this host; a commit that is nearer to the tip is found",
			Err: fmt.Errorf("commit %s is not among the last %d commits of %s, and no more are fetched: %w", f.id, seen.commits,
				text.Line(branch, 100), large)}
	}
	if err != nil {
		return err
	}
	if !seen.found {
		why := fmt.Sprintf("it is not among the %d commits of %s", seen.commits, text.Line(branch, 100))
		if !seen.whole {
			why += " that the server sends"
		}
		return f.notFound(why)
	}
	if last, known := pack.ParseID(f.call.remote.LastSynced); f.call.fallback && known {
		if seen, err = f.deepen(f.id, "", last); err != nil {
			return err
		}
		if !seen.found {
			return notServed(Ref{Name: branch, Hash: f.id.String()}, f.call.remote.LastSynced)
		}
	}
	refs, err := pack.ReadRefs(f.mirror.dir)
	if err != nil {
		return err
	}
	refs[pinName(f.id.String(), branch)] = f.id // it is on that branch
	return pack.WriteRefs(f.mirror.dir, refs)
}

// searchResult is what a look through the history in the mirror has shown.
type searchResult struct {
	found   bool
	whole   bool // all of the history is there
	commits int  // that were looked at
}

// deepen fetches tip with more and more of its history until that contains the commit, or
// is there as a whole. name is the ref that leads to tip, "" for none.
func (f *fetch) deepen(tip pack.ID, name string, commit pack.ID) (seen searchResult, err error) {
	for _, depth := range growth {
		if seen, err = f.searchHistory(tip, commit); err != nil || seen.found || seen.whole {
			return seen, err
		}
		if tip == commit {
			depth = 1
		}
		step := f.call.newFetch(tip)
		step.name = name
		step.depth = depth
		step.stats = f.stats
		err = step.run()
		if f.stats = step.stats; err != nil {
			return seen, err
		}
	}
	return f.searchHistory(tip, commit)
}

// searchHistory looks for a commit in the history of tip, as far as that is in the mirror.
func (f *fetch) searchHistory(tip, commit pack.ID) (seen searchResult, err error) {
	s, err := f.mirror.use(f.exchange.Limits.ObjectBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, pack.ErrDamaged) {
		return seen, nil // it is made by the fetch
	}
	if err != nil {
		return seen, err
	}
	defer f.mirror.release(s)
	seen.commits, seen.whole, err = s.store.History(f.exchange.Ctx, tip, func(id pack.ID) bool {
		seen.found = seen.found || id == commit
		return !seen.found
	})
	if seen.found && err == nil { // a commit may name it, and it is not there yet
		seen.found = s.store.Has(commit)
		seen.whole = seen.whole && seen.found
	}
	if errors.Is(err, pack.ErrDamaged) {
		f.mirror.markDamaged(s)
	}
	return seen, err
}

// notFound reports that a commit cannot be had, and where it was looked for.
func (f *fetch) notFound(why string) error {
	err, hint := fmt.Errorf("there is no commit %s: %s", f.id, why), "check hash and branch; a rewritten branch loses commits"
	if f.name == "" {
		err = fmt.Errorf("the server does not give out commit %s, and %s", f.id, why)
		hint = "name the branch that it is on; a rewritten branch loses commits"
	}
	return &Error{Kind: CommitNotFound, Err: err, Hint: hint}
}

// Contains reports whether a commit is tip, which has to be in the mirror, or among the commits
// before it. When the history there is too short to tell, more of it is fetched, as for a pinned
// commit, within the limits. A history that is longer than those does not contain it. It blocks as
// Fetch does.
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
