package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// install makes the spooled pack part of the mirror in dir: deltas resolved, all that it names
// present, durable, index and refs written. The order of the files is such that a power loss leaves
// the mirror as it was or as it will be.
func (f *fetch) install(dir string, old *pack.Store, got download) error {
	s := got.pack
	f.call.remote.Meter.Enter(transfer.Resolving)
	objects, size, inflated := s.Stock()
	if err := s.Resolve(f.exchange.Ctx, old, f.exchange.Limits); err != nil {
		return err
	}
	f.stats.Objects += objects
	f.stats.Inflated += inflated
	f.first = cmp.Or(f.first, size)
	if err := s.WriteIndex(dir); err != nil {
		return err
	}
	if err := f.cutHistory(old, &got); err != nil {
		return err
	}
	if err := f.checkConnected(old, got); err != nil {
		return err
	}
	if err := writeShallow(dir, got.ends); err != nil {
		return err
	}
	if objects > 0 {
		if err := s.Publish(dir); err != nil {
			return err
		}
	}
	refs, err := pack.ReadRefs(dir)
	if err != nil {
		return err
	}
	if !f.call.fallback { // the first URL may have what a fallback has not
		for name := range refs {
			if _, still := got.refs[name]; !still && !strings.HasPrefix(name, ownPrefix) {
				delete(refs, name)
				delete(refs, tagNote(name))
			}
		}
	}
	f.setRef(refs)
	err = pack.WriteRefs(dir, refs)
	f.mirror.extended(old)
	return err
}

// cutHistory notes the commits of a bundle whose parents are among its bases that the mirror lacks:
// the history ends there. Whether its files are all there is for checkConnected.
func (f *fetch) cutHistory(old *pack.Store, got *download) error {
	missing := missingBases(old, got.bases)
	if len(missing) == 0 {
		return nil
	}
	both, err := got.pack.Over(old, f.exchange.Limits.ObjectBytes)
	if err != nil {
		return err
	}
	for id, kind := range got.pack.Objects() {
		if kind != pack.CommitKind {
			continue
		}
		data, err := both.ReadKind(id, kind, f.exchange.Limits.ObjectBytes)
		if err != nil {
			return err
		}
		c, _ := pack.ParseCommit(data) // a malformed one is refused by checkConnected
		if slices.ContainsFunc(c.Parents, func(p pack.ID) bool { return slices.Contains(missing, p) }) && !slices.Contains(got.ends, id) {
			got.ends = append(got.ends, id)
		}
	}
	return nil
}

// missingBases are the bases of a bundle that the mirror lacks. old is nil for no mirror.
func missingBases(old *pack.Store, bases []pack.ID) []pack.ID {
	return slices.DeleteFunc(slices.Clone(bases), func(id pack.ID) bool { return old != nil && old.Has(id) })
}

// checkConnected checks that the wanted commit is there and that everything which the new objects
// name is there too, in the pack or in the mirror. Errors wrap pack.ErrIncomplete.
func (f *fetch) checkConnected(old *pack.Store, got download) error {
	both, err := got.pack.Over(old, f.exchange.Limits.ObjectBytes)
	if err != nil {
		return err
	}
	if err := f.peel(both); err != nil {
		return err
	}
	data, err := both.ReadKind(f.id, pack.CommitKind, f.exchange.Limits.ObjectBytes)
	if errors.Is(err, pack.ErrMissing) {
		return fmt.Errorf("%w: commit %s", pack.ErrIncomplete, f.id)
	}
	if err == nil {
		_, err = pack.ParseCommit(data)
	}
	if err == nil && !f.tag.IsZero() {
		err = both.Tagged(f.tag, f.id)
	}
	if err != nil {
		return err
	}
	check := func(id pack.ID, kind pack.Kind) error {
		if f.exchange.Ctx.Err() != nil {
			return context.Cause(f.exchange.Ctx)
		}
		names, err := namesOf(both, id, kind, got.ends)
		for _, named := range names {
			if err == nil && !both.Has(named) {
				err = fmt.Errorf("%w: %s, which %s names", pack.ErrIncomplete, named, id)
			}
		}
		return err
	}
	for _, id := range got.more {
		if err := check(id, pack.CommitKind); err != nil {
			return fmt.Errorf("%w: %w", pack.ErrIncomplete, err)
		}
	}
	for id, kind := range got.pack.Objects() {
		if err := check(id, kind); err != nil {
			return err
		}
	}
	return nil
}

// namesOf are the objects that a commit or a tree names, without submodules and the parents at the
// ends of history. What is malformed names nothing: the wanted commit is checked before, and a tree
// is refused when it is listed.
func namesOf(s *pack.Store, id pack.ID, kind pack.Kind, ends []pack.ID) (names []pack.ID, err error) {
	if kind != pack.CommitKind && kind != pack.TreeKind {
		return nil, nil
	}
	data, err := s.ReadKind(id, kind, s.Limit)
	if err != nil {
		return nil, err
	}
	if kind == pack.CommitKind {
		c, err := pack.ParseCommit(data)
		switch {
		case err != nil:
			return nil, nil
		case slices.Contains(ends, id):
			return []pack.ID{c.Tree}, nil
		}
		return append(c.Parents, c.Tree), nil
	}
	entries, err := pack.ParseTree(data)
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		if e.Mode != pack.ModeSubmodule {
			names = append(names, e.ID)
		}
	}
	return names, nil
}

// receive asks for w and installs the answer in dir. old is nil for a clone.
func (f *fetch) receive(dir string, old *pack.Store, w transport.Want, budget int64) error {
	got, err := f.download(dir, w, budget)
	if got.pack != nil {
		defer got.pack.Discard()
	}
	if err != nil {
		return err
	}
	err = f.install(dir, old, got)
	missing := missingBases(old, got.bases)
	if len(missing) > 0 && (errors.Is(err, pack.ErrIncomplete) || errors.Is(err, pack.ErrBadPack)) {
		return &Error{Kind: CommitNotFound, Err: fmt.Errorf("the bundle builds on commit %s, which the mirror does not have", missing[0]),
			Hint: "bring a bundle that contains that commit first, or one that was made without --since"}
	}
	return err
}

// download is what a server has sent for a want.
type download struct {
	pack  *pack.Spooled
	bases []pack.ID          // commits that a bundle builds on
	ends  []pack.ID          // of history, with those of before
	more  []pack.ID          // ends of before whose parents are sent
	refs  map[string]pack.ID // of the server: at least those that names lists
}

// names lists the refs in dir that stand for refs of the server, and the one that is fetched.
func (f *fetch) names(dir string) (names []string, err error) {
	refs, err := pack.ReadRefs(dir)
	for name := range refs {
		if name != f.name && !strings.HasPrefix(name, ownPrefix) {
			names = append(names, name)
		}
	}
	if f.name != "" {
		names = append(names, f.name)
	}
	return names, err
}

// download asks for w and spools the answer in dir. The pack is to be discarded also when there is
// an error.
func (f *fetch) download(dir string, w transport.Want, budget int64) (got download, err error) {
	leave, err := f.exchange.Visit()
	if err != nil {
		return got, err
	}
	defer leave()
	names, err := f.names(dir)
	if err != nil {
		return got, err
	}
	l, err := f.call.listRefs(names...)
	if err != nil {
		return got, err
	}
	if f.depth > 0 {
		defer f.call.keepListing(l) // it may be asked for more
	} else {
		defer l.Session.Close()
	}
	got.refs = l.Refs.References
	if _, named := got.refs[f.name]; f.name != "" && !named && !f.call.fallback {
		return got, &Error{Kind: BranchNotFound, Err: fmt.Errorf("there is no %q any more", text.Line(f.name, 100)),
			Hint: "resolve the branch again"}
	}
	answer, content, err := f.exchange.Ask(l, w, budget)
	if err != nil {
		return got, err
	}
	defer answer.Close()
	got.bases = f.exchange.Bases
	var arrivals *pack.Arrivals
	if to := f.call.remote.Receiver; to != nil {
		arrivals = &pack.Arrivals{Commit: f.id, Dir: f.call.remote.Dir, To: to}
	}
	if got.pack, err = pack.Spool(dir, content, f.exchange.Limits, f.call.remote.Meter, arrivals); err != nil {
		return got, err
	}
	io.Copy(io.Discard, io.LimitReader(answer, transport.ErrorBody)) // to the end, so that the connection can be used again
	got.more = answer.Unshallows
	for _, id := range slices.Concat(w.Shallows, w.Ends, answer.Shallows) {
		if !slices.Contains(got.ends, id) && !slices.Contains(got.more, id) {
			got.ends = append(got.ends, id)
		}
	}
	return got, nil
}
