package pack

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"slices"
)

// While a pack comes, its objects get their names beside the inflater, on another core. Git sends a
// delta soon after its base: most deltas are made from an object that is still held. The others are
// for Resolve.

// nearBytes is how much is held of the objects that came last, and largestNear the size of the
// largest of them. Unit: bytes.
const (
	nearBytes   = 2 << 20
	largestNear = 1 << 20
)

// arrival is an object that has come, with its content unless it has its name or is to be resolved
// later.
type arrival struct {
	entry entry
	back  int64 // offset of the object that an ofs-delta builds on
	data  []byte
}

// naming names the arrivals of a pack and adds them to its entries.
type naming struct {
	in    *incoming
	near  map[int32]*list.Element // of held, by the index of the entry
	held  list.List               // *nearby, the one that was used last in front
	bytes int                     // of their buffers
}

// nearby is an object that a delta may build on.
type nearby struct {
	at    int32
	depth int // deltas below it
	data  []byte
}

// add adds an object to the entries of the pack, with its name if that can be told.
func (n *naming) add(a arrival) error {
	e := &a.entry
	at := int32(len(n.in.entries))
	if e.kind == OfsDeltaKind {
		base, found := slices.BinarySearchFunc(n.in.entries, a.back, func(e entry, at int64) int { return cmp.Compare(e.offset, at) })
		if !found {
			return errors.New("a delta's base is not an object of the pack")
		}
		e.base = int32(base)
	}
	var err error
	switch {
	case a.data == nil:
	case e.delta:
		err = n.patch(at, e, a.data)
	default:
		e.id = IDOf(e.kind, a.data)
		n.hold(e, &nearby{at: at, data: a.data})
	}
	n.in.entries = append(n.in.entries, *e)
	return err
}

// patch makes the object of a delta if its base is held.
func (n *naming) patch(at int32, e *entry, delta []byte) error {
	defer Recycle(delta)
	place := n.near[e.base]
	if place == nil || e.result > largestNear {
		return nil
	}
	base := place.Value.(*nearby)
	if base.depth >= maxChain {
		return fmt.Errorf("a chain of more than %d deltas", maxChain)
	}
	data := buffer(e.result)
	if err := patch(data, base.data, delta); err != nil {
		return err
	}
	n.held.MoveToFront(place)
	e.kind = n.in.entries[e.base].kind
	e.id = IDOf(e.kind, data)
	n.hold(e, &nearby{at, base.depth + 1, data})
	return nil
}

func (n *naming) hold(e *entry, o *nearby) {
	n.in.to.add(e.kind, e.id, o.data)
	n.near[o.at] = n.held.PushFront(o)
	for n.bytes += cap(o.data); n.bytes > nearBytes; {
		last := n.held.Remove(n.held.Back()).(*nearby)
		delete(n.near, last.at)
		n.bytes -= cap(last.data)
		Recycle(last.data)
	}
}
