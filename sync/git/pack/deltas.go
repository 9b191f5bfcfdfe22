package pack

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"limpet/sync/git/giterr"
)

// heldBytes is how much of a chain of deltas is kept inflated while its branches are walked; what
// is dropped is made again. Unit: bytes.
const heldBytes = 32 << 20

// maxChain is git's own bound of the length of a chain of deltas.
const maxChain = 4095

// resolver computes the names of those deltas of a spooled pack that have none yet by making each
// of them once, base before delta, depth first.
type resolver struct {
	in     *incoming
	ctx    context.Context // run-scope: of the one Resolve
	spool  *os.File
	reader *objectReader
	limits Limits

	byBase  []int32        // ofs-deltas, sorted by base
	waiting map[ID][]int32 // ref-deltas by the name of their base
	left    int            // deltas that are not made yet
	work    int64          // bytes made so far, repetitions included
}

// link is one object of a chain.
type link struct {
	base  *link // nil for an object that is no delta
	depth int   // links before it
	entry int32 // -1 for an object from outside the pack
	kind  Kind
	data  []byte // nil when dropped
}

// Resolve makes every delta that got no name while it came, which gives it name and kind, and adds
// the objects of old that a thin pack builds on, so that the pack can be read by itself.
// old is nil for none. Errors wrap ErrBadPack or ErrIncomplete, or are *TooLargeError.
func (s *Spooled) Resolve(ctx context.Context, old *Store, l Limits) error {
	r := &resolver{in: s.in, ctx: ctx, spool: s.file, reader: objectReaders.Get().(*objectReader), limits: l,
		waiting: map[ID][]int32{}}
	defer objectReaders.Put(r.reader)
	for i, e := range s.in.entries {
		if base, named := s.in.bases[int32(i)]; named {
			r.waiting[base] = append(r.waiting[base], int32(i))
		} else if e.delta {
			r.byBase = append(r.byBase, int32(i))
		}
		if e.id.IsZero() {
			r.left++
		}
	}
	if r.left == 0 {
		return nil
	}
	slices.SortStableFunc(r.byBase, func(a, b int32) int { return cmp.Compare(s.in.entries[a].base, s.in.entries[b].base) })
	for i, e := range s.in.entries {
		if !e.delta {
			if err := r.descend(&link{entry: int32(i), kind: e.kind}, e.id); err != nil {
				return err
			}
		}
	}
	var thin []ID // of objects from outside
	for _, id := range slices.SortedFunc(maps.Keys(r.waiting), func(a, b ID) int { return slices.Compare(a[:], b[:]) }) {
		if old == nil || r.waiting[id] == nil {
			continue
		}
		k, data, err := old.Read(id, l.ObjectBytes)
		if err != nil {
			continue // it may yet be made by another delta of this pack
		}
		thin = append(thin, id)
		if err := r.descend(&link{entry: -1, kind: k, data: data}, id); err != nil {
			return err
		}
	}
	if r.left > 0 {
		blame := ErrBadPack
		if old != nil {
			blame = ErrIncomplete // the mirror may have had them: a clone shows it
		}
		return fmt.Errorf("%w: %d deltas build on objects that were not sent", blame, r.left)
	}
	return s.complete(old, thin, l.ObjectBytes)
}

// near returns the deltas that name an entry by its distance.
func (r *resolver) near(entry int32) []int32 {
	find := func(base int32) int {
		at, _ := slices.BinarySearchFunc(r.byBase, base, func(i, base int32) int { return cmp.Compare(r.in.entries[i].base, base) })
		return at
	}
	return r.byBase[find(entry):find(entry+1)]
}

// descend makes all deltas that build on an object, and those that build on them.
func (r *resolver) descend(l *link, id ID) error {
	// Each delta that builds on the object is taken once. Those that no other delta builds on come
	// first: after the last one the object is not needed again.
	deltas := slices.Concat(r.near(l.entry), r.waiting[id])
	delete(r.waiting, id)
	slices.SortStableFunc(deltas, func(a, b int32) int { return cmp.Compare(len(r.near(a)), len(r.near(b))) })
	if len(deltas) > 0 && l.depth >= maxChain {
		return fmt.Errorf("%w: a chain of more than %d deltas", ErrBadPack, maxChain)
	}
	for i, at := range deltas {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		next := &link{base: l, depth: l.depth + 1, entry: at, kind: l.kind}
		e := &r.in.entries[at]
		if e.id.IsZero() {
			var err error
			if l.data, err = r.content(l); err != nil {
				return err
			}
			if next.data, err = r.content(next); err != nil {
				return err
			}
			e.kind, e.id = next.kind, IDOf(next.kind, next.data)
			r.in.to.add(e.kind, e.id, next.data)
			r.left--
		}
		if i == len(deltas)-1 && l.entry >= 0 {
			l.drop()
		}
		held := cap(next.data) // what is nearest to the end of the chain is kept
		for l := l; l != nil; l = l.base {
			if held += cap(l.data); held > heldBytes && l.entry >= 0 {
				held -= cap(l.data)
				l.drop()
			}
		}
		if err := r.descend(next, e.id); err != nil {
			return err
		}
		next.drop()
	}
	return nil
}

func (l *link) drop() {
	Recycle(l.data)
	l.data = nil
}

// content returns an object of a chain, making it again when it was dropped.
func (r *resolver) content(l *link) (base []byte, err error) {
	if l.data != nil {
		return l.data, nil
	}
	if l.base != nil {
		if base, err = r.content(l.base); err != nil {
			return nil, err
		}
	}
	e := &r.in.entries[l.entry]
	if err := r.count(e.size); err != nil {
		return nil, err
	}
	h, err := r.reader.header(r.spool, e.offset)
	if err != nil {
		return nil, err
	}
	stored, err := r.reader.inflate(h)
	if err != nil || l.base == nil {
		return stored, err
	}
	if err := r.count(e.result); err != nil {
		return nil, err
	}
	defer Recycle(stored)
	data := buffer(e.result)
	if err := patch(data, base, stored); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPack, err)
	}
	return data, nil
}

// count holds the work against the limit: a small pack can describe a great many large objects.
func (r *resolver) count(n int64) error {
	r.work += n
	if limit := 2 * r.limits.InflatedBytes; r.work > limit {
		return &giterr.TooLargeError{What: "work of resolving deltas", Size: r.work, Limit: limit}
	}
	return nil
}
