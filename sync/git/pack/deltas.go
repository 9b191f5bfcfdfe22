package pack

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"limpet/sync/git/giterr"
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
	spool   io.ReaderAt
	limits  Limits
	outside func(ID) (Kind, []byte, error) // bases that the pack leaves out

	children []int32        // delta entries, sorted by base
	waiting  map[ID][]int32 // ref-deltas by the name of their base
	hash     *idHasher
	made     int64 // bytes made so far, repetitions included
	done     int   // deltas resolved
	spare    [][]byte
	thin     []Object
}

// Object is one with its content, such as a thin pack builds on.
type Object struct {
	ID   ID
	Kind Kind
	Data []byte
}

// step is one object on the way down a chain.
type step struct {
	entry int32 // -1 for an object from outside the pack
	kind  Kind
	data  []byte // nil when dropped
	kids  []int32
}

// Resolve makes every delta of the pack once, which gives it its name and kind, and adds
// the objects of old that a thin pack builds on, so that the pack can be read by itself.
// old is nil for none. Errors wrap ErrBadPack or ErrIncomplete, or are *TooLargeError.
func (s *Spooled) Resolve(ctx context.Context, old *Store, l Limits) error {
	var outside func(ID) (Kind, []byte, error)
	if old != nil {
		outside = func(id ID) (Kind, []byte, error) { return old.Read(id, l.ObjectBytes) }
	}
	thin, err := resolveDeltas(ctx, s.incoming, s.file, l, outside)
	if err != nil || len(thin) == 0 {
		return err
	}
	return s.complete(thin)
}

// resolveDeltas fills in id, kind and result of every delta of p. It returns
// the objects outside the pack that were used as bases: a thin pack is made
// whole by adding them. Errors wrap ErrBadPack or are *TooLargeError.
func resolveDeltas(ctx context.Context, p *incoming, spool io.ReaderAt, l Limits,
	outside func(ID) (Kind, []byte, error)) ([]Object, error) {
	r := &resolver{ctx: ctx, pack: p, spool: spool, limits: l, outside: outside,
		waiting: make(map[ID][]int32), hash: newIDHasher()}
	deltas := 0
	for i := range p.entries {
		if !p.entries[i].delta {
			continue
		}
		deltas++
		if base, named := p.bases[int32(i)]; named {
			r.waiting[base] = append(r.waiting[base], int32(i))
		} else {
			r.children = append(r.children, int32(i))
		}
	}
	if deltas == 0 {
		return nil, nil
	}
	slices.SortStableFunc(r.children, func(a, b int32) int { return cmp.Compare(p.entries[a].base, p.entries[b].base) })
	for i := range p.entries {
		if e := &p.entries[i]; !e.delta {
			if err := r.resolveChain(step{entry: int32(i), kind: e.kind}, e.id); err != nil {
				return nil, err
			}
		}
	}
	if err := r.fromOutside(); err != nil {
		return nil, err
	}
	if r.done != deltas {
		blame := ErrBadPack
		if r.outside != nil {
			blame = ErrIncomplete // the mirror may have had them: a clone tells
		}
		return nil, fmt.Errorf("%w: %d deltas build on objects that were not sent", blame, deltas-r.done)
	}
	return r.thin, nil
}

// fromOutside resolves what waits for objects that the pack does not hold.
func (r *resolver) fromOutside() error {
	names := make([]ID, 0, len(r.waiting))
	for id := range r.waiting {
		names = append(names, id)
	}
	slices.SortFunc(names, func(a, b ID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range names {
		if _, still := r.waiting[id]; !still {
			continue
		}
		if r.outside == nil {
			break
		}
		k, data, err := r.outside(id)
		if err != nil {
			continue // it may yet be made by another delta of this pack
		}
		r.thin = append(r.thin, Object{id, k, data})
		if err := r.resolveChain(step{entry: -1, kind: k, data: data}, id); err != nil {
			return err
		}
	}
	return nil
}

// kidsOf takes the deltas that build on an object; each is given out once. Those
// that nothing builds on come first: with the last one the object is let go.
func (r *resolver) kidsOf(entry int32, id ID) []int32 {
	kids := r.ofsKids(entry)
	if named, ok := r.waiting[id]; ok {
		kids = append(slices.Clone(kids), named...)
		delete(r.waiting, id)
	}
	slices.SortStableFunc(kids, func(a, b int32) int { return cmp.Compare(len(r.ofsKids(a)), len(r.ofsKids(b))) })
	return kids
}

// ofsKids are the deltas that name an entry by its place.
func (r *resolver) ofsKids(entry int32) []int32 {
	if entry < 0 {
		return nil
	}
	at, _ := slices.BinarySearchFunc(r.children, entry, func(i, base int32) int { return cmp.Compare(r.pack.entries[i].base, base) })
	end := at
	for end < len(r.children) && r.pack.entries[r.children[end]].base == entry {
		end++
	}
	return r.children[at:end]
}

// resolveChain walks all chains that begin at root, whose name is id.
func (r *resolver) resolveChain(root step, id ID) error {
	root.kids = r.kidsOf(root.entry, id)
	if len(root.kids) == 0 {
		return nil
	}
	path := []step{root}
	for len(path) > 0 {
		top := &path[len(path)-1]
		if len(top.kids) == 0 {
			r.recycle(top)
			path = path[:len(path)-1]
			continue
		}
		if err := r.ctx.Err(); err != nil {
			return err
		}
		kid := top.kids[0]
		top.kids = top.kids[1:]
		base, err := r.content(path, len(path)-1)
		if err != nil {
			return err
		}
		e := &r.pack.entries[kid]
		data, err := r.apply(e, base)
		if err != nil {
			return err
		}
		e.kind, e.result = top.kind, int64(len(data))
		e.id = r.hash.of(e.kind, data)
		r.done++
		if len(top.kids) == 0 {
			r.recycle(top)
		}
		next := step{entry: kid, kind: e.kind, data: data, kids: r.kidsOf(kid, e.id)}
		if len(next.kids) == 0 {
			r.recycle(&next)
			continue
		}
		if len(path) >= maxChain {
			return fmt.Errorf("%w: a chain of more than %d deltas", ErrBadPack, maxChain)
		}
		path = append(path, next)
		r.drop(path)
	}
	return nil
}

// drop forgets contents from the bottom of the path up until little is held.
func (r *resolver) drop(path []step) {
	held := 0
	for i := len(path) - 1; i >= 0; i-- {
		held += len(path[i].data)
		if held > heldBytes && i < len(path)-1 && path[i].entry >= 0 {
			held -= len(path[i].data)
			r.recycle(&path[i])
		}
	}
}

// recycle takes the content of a step for the next object: with large objects
// the collector would else lag behind by several of them. What came from
// outside the pack is still needed.
func (r *resolver) recycle(s *step) {
	if s.entry >= 0 && s.data != nil {
		if len(r.spare) < 2 {
			r.spare = append(r.spare, s.data)
		}
		s.data = nil
	}
}

// spareBuffer returns a recycled slice.
func (r *resolver) spareBuffer() []byte {
	if len(r.spare) == 0 {
		return nil
	}
	last := r.spare[len(r.spare)-1]
	r.spare = r.spare[:len(r.spare)-1]
	return last
}

// content returns the object at path[i], making it again when it was dropped.
func (r *resolver) content(path []step, i int) ([]byte, error) {
	from := i
	for path[from].data == nil && from > 0 {
		from--
	}
	if path[from].data == nil {
		e := &r.pack.entries[path[from].entry]
		data, err := r.inflate(e)
		if err != nil {
			return nil, err
		}
		path[from].data = data
	}
	data := path[from].data
	for at := from + 1; at <= i; at++ {
		next, err := r.apply(&r.pack.entries[path[at].entry], data)
		if err != nil {
			return nil, err
		}
		if at-1 > from { // made on the way only
			r.recycle(&step{data: data})
		}
		data = next
	}
	path[i].data = data
	return data, nil
}

func (r *resolver) apply(e *entry, base []byte) ([]byte, error) {
	delta, err := r.inflate(e)
	if err != nil {
		return nil, err
	}
	data, err := applyDelta(r.spareBuffer(), base, delta, r.limits.ObjectBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPack, err)
	}
	return data, r.count(len(data))
}

func (r *resolver) inflate(e *entry) ([]byte, error) {
	if err := r.count(int(e.size)); err != nil {
		return nil, err
	}
	data, err := inflateAt(r.spool, e.offset+int64(e.head), e.size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPack, err)
	}
	return data, nil
}

// count holds the work against the limit: a small pack can describe a great
// many large objects.
func (r *resolver) count(n int) error {
	r.made += int64(n)
	if limit := 2 * r.limits.InflatedBytes; r.made > limit {
		return &giterr.TooLargeError{What: "work of resolving deltas", Size: r.made, Limit: limit}
	}
	return nil
}
