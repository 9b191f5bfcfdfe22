package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
)

// Content is what a bundle is to hold.
type Content struct {
	Ref   string  // full name
	Tip   pack.ID // commit
	Tag   pack.ID // the annotated tag that leads to it; zero = none
	Since pack.ID // a commit that the reader has; zero = none
	Depth int     // number of commits from the tip downwards; 0 = all that are in the store
}

// Write writes a bundle with objects of a store. Parents of its commits that are not in it are its
// Ends.
func Write(ctx context.Context, w io.Writer, s *pack.Store, c Content) error {
	p := plan{ctx: ctx, store: s, depth: map[pack.ID]int{}}
	if err := p.make(c); err != nil {
		return err
	}
	if err := p.header.write(w); err != nil {
		return err
	}
	return pack.EncodeTo(w, len(p.objects), func(yield func(pack.Packed, error) bool) {
		for _, o := range p.objects {
			if !yield(p.packed(o)) {
				return
			}
		}
	})
}

// plan is the list of the objects of a bundle.
type plan struct {
	header  Header
	ctx     context.Context // run-scope: of the one Write
	store   *pack.Store
	objects []object
	level   int             // of the directory that is listed
	depth   map[pack.ID]int // of the chain of deltas of an object that is in the list, or that the reader has
}

// object is one object of a bundle.
type object struct {
	id, base pack.ID // base is zero for none
}

// Bounds. Source of the first: git.
const (
	maxDepth  = 50      // of a chain of deltas
	maxDelta  = 4 << 20 // bytes of an object that becomes a delta
	maxLevels = 1000    // of directories
)

var errDeep = errors.New("too many levels of directories")

func (p *plan) packed(o object) (packed pack.Packed, err error) {
	if err := p.ctx.Err(); err != nil {
		return packed, context.Cause(p.ctx)
	}
	kind, data, err := p.store.Read(o.id, p.store.Limit)
	made := pack.Object{ID: o.id, Kind: kind, Data: data}
	if err != nil || o.base.IsZero() || len(data) > maxDelta {
		return made.Pack(), err
	}
	kind, data, err = p.store.Read(o.base, maxDelta)
	if _, large := errors.AsType[*giterr.TooLargeError](err); large || err == nil && kind != made.Kind {
		return made.Pack(), nil
	}
	return made.Delta(pack.Object{ID: o.base, Kind: kind, Data: data}), err
}

// add puts an object on the list, unless it is there. Its base has to be there.
func (p *plan) add(id, base pack.ID) {
	if _, there := p.depth[id]; there {
		return
	}
	depth, there := p.depth[base]
	if !there || depth >= maxDepth {
		base, depth = pack.ID{}, -1
	}
	p.depth[id] = depth + 1
	p.objects = append(p.objects, object{id, base})
}

// make lists the tag, the commits, newest first, and then their trees and blobs.
func (p *plan) make(c Content) error {
	p.header.Refs = map[string]pack.ID{c.Ref: c.Tip, "HEAD": c.Tip}
	if !c.Tag.IsZero() {
		p.header.Refs[c.Ref] = c.Tag
		if err := p.store.Tagged(c.Tag, c.Tip); err != nil {
			return err
		}
	}
	for id := c.Tag; !id.IsZero() && id != c.Tip; {
		p.add(id, pack.ID{})
		data, err := p.store.ReadKind(id, pack.TagKind, p.store.Limit)
		if err != nil {
			return err
		}
		if id, err = pack.ParseTag(data); err != nil {
			return err
		}
	}
	had, since := map[pack.ID]bool{}, pack.Commit{}
	if !c.Since.IsZero() {
		var err error
		if since, err = p.commit(c.Since); err != nil {
			return err
		}
		if _, _, err = p.store.History(p.ctx, c.Since, func(id pack.ID) bool { had[id] = true; return true }); err != nil {
			return err
		}
		p.header.Bases = []pack.ID{c.Since}
	}
	commits, err := p.commits(c, had)
	if err != nil {
		return err
	}
	for _, id := range slices.Backward(commits) { // deltas build on older objects
		c, err := p.commit(id)
		if err != nil {
			return err
		}
		parent, had := since.Tree, true // the reader may lack all trees but this one
		if len(c.Parents) > 0 {
			if _, ours := p.depth[c.Parents[0]]; ours {
				first, err := p.commit(c.Parents[0])
				if err != nil {
					return err
				}
				parent, had = first.Tree, false
			}
		}
		if err := p.tree(parent, c.Tree, had); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) commit(id pack.ID) (pack.Commit, error) {
	data, err := p.store.ReadKind(id, pack.CommitKind, p.store.Limit)
	if errors.Is(err, pack.ErrMissing) {
		return pack.Commit{}, giterr.Wrap(giterr.CommitNotFound, fmt.Errorf("%w %s", giterr.ErrUnknownCommit, id), "")
	}
	if err != nil {
		return pack.Commit{}, err
	}
	return pack.ParseCommit(data)
}

// commits lists the commits from the tip downwards, and puts the parents that are left out among
// the bases.
func (p *plan) commits(c Content, had map[pack.ID]bool) (all []pack.ID, err error) {
	level, out := []pack.ID{c.Tip}, []pack.ID(nil)
	if c.Tip == c.Since {
		return nil, giterr.New(giterr.Empty, "there is nothing new: the reader has commit "+c.Tip.String(), "")
	}
	delete(had, c.Tip) // a reader that has what came after it may be shallow, and lack it
	met := map[pack.ID]bool{c.Tip: true}
	for depth := 1; len(level) > 0; depth++ {
		var next []pack.ID
		for _, id := range level {
			commit, err := p.commit(id)
			if err != nil {
				return nil, err
			}
			p.add(id, pack.ID{})
			all = append(all, id)
			for _, parent := range commit.Parents {
				switch {
				case met[parent]:
				case had[parent] || depth == c.Depth || !p.store.Has(parent):
					out = append(out, parent)
				default:
					met[parent] = true
					next = append(next, parent)
				}
			}
		}
		level = next
	}
	for _, id := range out {
		if !met[id] && !slices.Contains(p.header.Bases, id) && !slices.Contains(p.header.Ends, id) {
			p.header.Ends = append(p.header.Ends, id)
		}
	}
	return all, nil
}

// tree lists what is new in a tree against an older one, all of which the reader has or gets. had
// reports that it has it.
func (p *plan) tree(old, id pack.ID, had bool) error {
	if _, there := p.depth[id]; there || old == id {
		return nil
	}
	if p.level++; p.level > maxLevels || p.ctx.Err() != nil {
		return cmp.Or(context.Cause(p.ctx), errDeep)
	}
	defer func() { p.level-- }()
	before := map[string]pack.TreeEntry{}
	if !old.IsZero() {
		entries, err := p.entries(old)
		if err != nil {
			return err
		}
		for _, e := range append(entries, pack.TreeEntry{ID: old}) {
			if before[e.Name] = e; had && e.Mode != pack.ModeSubmodule {
				p.depth[e.ID] += 0 // so that no object is a delta of one that is a delta of it
			}
		}
	}
	if _, there := p.depth[id]; there {
		return nil
	}
	p.add(id, old)
	entries, err := p.entries(id)
	for _, e := range entries {
		was := before[e.Name]
		switch isTree := e.Mode == pack.ModeTree; {
		case err != nil || e.Mode == pack.ModeSubmodule || was.ID == e.ID:
		case isTree && was.Mode == pack.ModeTree:
			err = p.tree(was.ID, e.ID, had)
		case isTree:
			err = p.tree(pack.ID{}, e.ID, had)
		default:
			p.add(e.ID, was.ID)
		}
	}
	return err
}

func (p *plan) entries(tree pack.ID) ([]pack.TreeEntry, error) {
	data, err := p.store.ReadKind(tree, pack.TreeKind, p.store.Limit)
	if err != nil {
		return nil, err
	}
	return pack.ParseTree(data)
}
