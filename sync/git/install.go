package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// install makes the spooled pack part of the mirror in dir: deltas resolved,
// all that it names present, durable, index and refs written. The order of the
// files is such that a power loss leaves the mirror as it was or as it will be.
func (f *fetch) install(dir string, old *handle, got download) error {
	s, ends := got.pack, got.ends
	sent := s.Stock()
	if err := s.Resolve(f.Ctx, old.below(), f.Limits); err != nil {
		return err
	}
	f.stats.Objects += sent.Objects
	f.stats.Inflated += sent.Inflated
	if f.first == 0 {
		f.first = sent.Bytes
	}
	if err := s.WriteIndex(dir); err != nil {
		return err
	}
	if err := f.checkConnected(old, got); err != nil {
		return err
	}
	if err := writeShallow(dir, ends); err != nil {
		return err
	}
	if sent.Objects > 0 {
		if err := s.Publish(dir); err != nil {
			return err
		}
	}
	refs, err := pack.ReadRefs(dir)
	if err != nil {
		return err
	}
	if !f.fallback { // the first URL may have what a fallback has not
		for name := range refs {
			if _, still := got.refs[name]; !still && !strings.HasPrefix(name, ownPrefix) {
				delete(refs, name)
				delete(refs, tagNote(name))
			}
		}
	}
	f.setRef(refs)
	if err := pack.WriteRefs(dir, refs); err != nil {
		return err
	}
	f.mirror.changed()
	return pack.SyncDir(dir)
}

// checkConnected checks that the wanted commit is there and that everything which the
// new objects name is there too, in the pack or in the mirror. Errors wrap
// pack.ErrIncomplete.
func (f *fetch) checkConnected(old *handle, got download) error {
	s, ends := got.pack, got.ends
	both, err := s.Over(old.below(), f.Limits.ObjectBytes)
	if err != nil {
		return err
	}
	need := func(id pack.ID, by string) error {
		there, err := both.Has(id)
		if err == nil && !there {
			err = fmt.Errorf("%w: %s, which %s names", pack.ErrIncomplete, id, by)
		}
		return err
	}
	data, err := both.ReadKind(f.id, pack.CommitKind, f.Limits.ObjectBytes)
	if errors.Is(err, pack.ErrMissing) {
		return fmt.Errorf("%w: commit %s", pack.ErrIncomplete, f.id)
	}
	if err != nil {
		return err
	}
	if _, err := pack.ParseCommit(data); err != nil {
		return err
	}
	if !f.tag.IsZero() {
		if err := both.Tagged(f.tag, f.id); err != nil {
			return err
		}
	}
	for _, id := range got.more {
		names, err := f.commitNames(both, id, ends)
		if err != nil {
			return fmt.Errorf("%w: %w", pack.ErrIncomplete, err)
		}
		for _, parent := range names {
			if err := need(parent, id.String()); err != nil {
				return err
			}
		}
	}
	for id, kind := range s.Objects() {
		if f.Ctx.Err() != nil {
			return context.Cause(f.Ctx)
		}
		var names []pack.ID
		switch kind {
		case pack.CommitKind:
			names, err = f.commitNames(both, id, ends)
		case pack.TreeKind:
			names, err = treeNames(both, id)
		default:
			continue
		}
		if err != nil {
			return err
		}
		for _, named := range names {
			if err := need(named, id.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// commitNames are tree and parents; at the end of history the parents are left out.
func (f *fetch) commitNames(s *pack.Store, id pack.ID, ends []pack.ID) ([]pack.ID, error) {
	data, err := s.ReadKind(id, pack.CommitKind, s.Limit)
	if err != nil {
		return nil, err
	}
	c, err := pack.ParseCommit(data)
	if err != nil {
		return nil, nil // nobody can use it; it is an error when it is the wanted one
	}
	if slices.Contains(ends, id) {
		return []pack.ID{c.Tree}, nil
	}
	return append(c.Parents, c.Tree), nil
}

// treeNames are the entries but submodules; a malformed tree names nothing and
// is refused when it is listed.
func treeNames(s *pack.Store, id pack.ID) ([]pack.ID, error) {
	data, err := s.ReadKind(id, pack.TreeKind, s.Limit)
	if err != nil {
		return nil, err
	}
	entries, err := pack.ParseTree(data)
	if err != nil {
		return nil, nil
	}
	var names []pack.ID
	for _, e := range entries {
		if e.Mode != pack.ModeSubmodule {
			names = append(names, e.ID)
		}
	}
	return names, nil
}

// receive asks for w and installs the answer in dir. old is nil for a clone.
func (f *fetch) receive(dir string, old *handle, w transport.Want, budget int64) error {
	got, err := f.download(dir, w, budget)
	if got.pack != nil {
		defer got.pack.Discard()
	}
	if err != nil {
		return err
	}
	return f.install(dir, old, got)
}

// download is what a server has sent for a want.
type download struct {
	pack *pack.Spooled
	ends []pack.ID          // of history, with those of before
	more []pack.ID          // ends of before whose parents are sent
	refs map[string]pack.ID // all that the server has
}

// download asks for w and spools the answer in dir. The pack is to be discarded
// also when there is an error.
func (f *fetch) download(dir string, w transport.Want, budget int64) (got download, err error) {
	leave, err := f.Visit()
	if err != nil {
		return got, err
	}
	defer leave()
	l, err := f.listRefs()
	if err != nil {
		return got, err
	}
	if f.depth > 0 {
		defer f.keepListing(l) // it may be asked for more
	} else {
		defer l.Session.Close()
	}
	got.refs = l.Refs.References
	if _, named := got.refs[f.name]; f.name != "" && !named && !f.fallback {
		return got, &Error{Kind: BranchNotFound, Err: fmt.Errorf("there is no %q any more", text.Line(f.name, 100)),
			Hint: "resolve the branch again"}
	}
	answer, content, err := f.Ask(l, w, budget)
	if err != nil {
		return got, err
	}
	defer answer.Close()
	if got.pack, err = pack.Spool(dir, content, f.Limits); err != nil {
		return got, err
	}
	io.Copy(io.Discard, io.LimitReader(answer, transport.ErrorBody)) // to the end, so that the connection can be used again
	got.ends = slices.Concat(w.Shallows, w.Ends)
	for _, id := range answer.Shallows {
		if !slices.Contains(got.ends, id) {
			got.ends = append(got.ends, id)
		}
	}
	got.more = answer.Unshallows
	got.ends = slices.DeleteFunc(got.ends, func(id pack.ID) bool { return slices.Contains(got.more, id) })
	return got, nil
}
