package pack

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"limpet/sync/git/giterr"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// heldBytes is how much of a chain of deltas is kept inflated while its
// branches are walked; what is dropped is made again. Unit: bytes.
const heldBytes = 32 << 20

// maxChain is git's own bound of the length of a chain of deltas.
const maxChain = 4095

// resolver computes the names of the deltas of a spooled pack by making each of
// them once, base before delta, depth first.
type resolver struct {
	ctx     context.Context
	pack    *incoming
	spool   *packfile.Scanner
	limits  Limits
	outside *Store // has bases that the pack leaves out; nil for none

	byBase  []int32        // ofs-deltas, sorted by base
	waiting map[ID][]int32 // ref-deltas by the name of their base
	path    []*link        // from an object that is no delta to the present one
	thin    []Object       // objects from outside that deltas build on
	made    int64          // bytes made so far, repetitions included
	done    int            // deltas resolved
}

// link is one object of a chain.
type link struct {
	base  *link // nil for an object that is no delta
	entry int32 // -1 for an object from outside the pack
	kind  Kind
	data  []byte // nil when dropped
}

// Resolve makes every delta of the pack once, which gives it its name and kind, and adds
// the objects of old that a thin pack builds on, so that the pack can be read by itself.
// old is nil for none. Errors wrap ErrBadPack or ErrIncomplete, or are *TooLargeError.
func (s *Spooled) Resolve(ctx context.Context, old *Store, l Limits) error {
	r := &resolver{ctx: ctx, pack: s.incoming, spool: packfile.NewScanner(s.file), limits: l, outside: old, waiting: map[ID][]int32{}}
	deltas := len(s.bases)
	for i, e := range s.entries {
		if base, named := s.bases[int32(i)]; named {
			r.waiting[base] = append(r.waiting[base], int32(i))
		} else if e.delta {
			r.byBase = append(r.byBase, int32(i))
			deltas++
		}
	}
	slices.SortStableFunc(r.byBase, func(a, b int32) int { return cmp.Compare(s.entries[a].base, s.entries[b].base) })
	for i, e := range s.entries {
		if !e.delta {
			if err := r.descend(&link{entry: int32(i), kind: e.kind}, e.id); err != nil {
				return err
			}
		}
	}
	if err := r.fromOutside(); err != nil {
		return err
	}
	if r.done != deltas {
		blame := ErrBadPack
		if old != nil {
			blame = ErrIncomplete // the mirror may have had them: a clone shows it
		}
		return fmt.Errorf("%w: %d deltas build on objects that were not sent", blame, deltas-r.done)
	}
	return s.complete(r.thin)
}

// fromOutside resolves what waits for objects that the pack does not hold.
func (r *resolver) fromOutside() error {
	if r.outside == nil {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(r.waiting), func(a, b ID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range names {
		if r.waiting[id] == nil {
			continue
		}
		k, data, err := r.outside.Read(id, r.limits.ObjectBytes)
		if err != nil {
			continue // it may yet be made by another delta of this pack
		}
		r.thin = append(r.thin, Object{id, k, data})
		if err := r.descend(&link{entry: -1, kind: k, data: data}, id); err != nil {
			return err
		}
	}
	return nil
}

// takeDeltas takes the deltas that build on an object; each is given out once. Those that
// no other delta builds on come first: after the last one the object is not needed again.
func (r *resolver) takeDeltas(entry int32, id ID) []int32 {
	out := slices.Concat(r.near(entry), r.waiting[id])
	delete(r.waiting, id)
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(len(r.near(a)), len(r.near(b))) })
	return out
}

// near returns the deltas that name an entry by its distance.
func (r *resolver) near(entry int32) []int32 {
	find := func(base int32) int {
		at, _ := slices.BinarySearchFunc(r.byBase, base, func(i, base int32) int { return cmp.Compare(r.pack.entries[i].base, base) })
		return at
	}
	return r.byBase[find(entry):find(entry+1)]
}

// descend makes all deltas that build on an object, and those that build on them.
func (r *resolver) descend(l *link, id ID) error {
	deltas := r.takeDeltas(l.entry, id)
	if len(deltas) == 0 {
		return nil
	}
	if len(r.path) >= maxChain {
		return fmt.Errorf("%w: a chain of more than %d deltas", ErrBadPack, maxChain)
	}
	r.path = append(r.path, l)
	defer func() { r.path = r.path[:len(r.path)-1] }()
	for i, at := range deltas {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		base, err := r.content(l)
		if err != nil {
			return err
		}
		next := &link{base: l, entry: at, kind: l.kind}
		if next.data, err = r.apply(at, base); err != nil {
			return err
		}
		if l.entry >= 0 {
			if l.data = base; i == len(deltas)-1 {
				l.data = nil
			}
		}
		e := &r.pack.entries[at]
		e.kind, e.id = next.kind, IDOf(next.kind, next.data)
		r.done++
		r.drop(len(next.data))
		if err := r.descend(next, e.id); err != nil {
			return err
		}
	}
	return nil
}

// drop forgets contents from the bottom of the path up until little is held.
func (r *resolver) drop(held int) {
	for _, l := range slices.Backward(r.path) {
		if held += len(l.data); held > heldBytes && l.entry >= 0 {
			held -= len(l.data)
			l.data = nil
		}
	}
}

// content returns an object of the path, making it again when it was dropped.
func (r *resolver) content(l *link) ([]byte, error) {
	switch {
	case l.data != nil:
		return l.data, nil
	case l.base == nil:
		return r.inflate(l.entry)
	}
	base, err := r.content(l.base)
	if err != nil {
		return nil, err
	}
	return r.apply(l.entry, base)
}

func (r *resolver) apply(at int32, base []byte) ([]byte, error) {
	delta, err := r.inflate(at)
	if err != nil {
		return nil, err
	}
	data, err := applyDelta(base, delta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPack, err)
	}
	return data, r.count(int64(len(data)))
}

func (r *resolver) inflate(at int32) ([]byte, error) {
	e := &r.pack.entries[at]
	if err := r.count(e.size); err != nil {
		return nil, err
	}
	h, err := r.spool.SeekObjectHeader(e.offset)
	if err != nil {
		return nil, err
	}
	return inflate(r.spool, h)
}

// count holds the work against the limit: a small pack can describe a great
// many large objects.
func (r *resolver) count(n int64) error {
	r.made += n
	if limit := 2 * r.limits.InflatedBytes; r.made > limit {
		return &giterr.TooLargeError{What: "work of resolving deltas", Size: r.made, Limit: limit}
	}
	return nil
}
