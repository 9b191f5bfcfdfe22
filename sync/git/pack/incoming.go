package pack

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"limpet/sync/git/giterr"
	"limpet/sync/git/transfer"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// A pack that comes from the wire is read once: every byte goes into the spool file, every object is inflated
// into a hash and thrown away. Its header has its size, a delta's first bytes that of what it makes, so a pack
// beyond the limits is refused before. Memory does not depend on the objects' sizes.

// entry is one object of a pack.
type entry struct {
	id     ID
	kind   Kind // as stored; of the result once a delta is resolved
	delta  bool // stored as a delta
	crc    uint32
	base   int32 // index of the entry that an ofs-delta builds on, else -1
	offset int64
	size   int64 // of what is stored, inflated
	result int64 // of the object
}

// incoming is a pack whose bytes lie in the spool file.
type incoming struct {
	entries []entry
	made    int64        // bytes of all objects, inflated
	bases   map[int32]ID // entries that are deltas against an object by name
	size    int64        // of the pack with its checksum
	sum     ID           // the checksum
}

// wire remembers the error of a reader.
type wire struct {
	io.Reader
	err error
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// readPack copies a pack from src to spool and examines it. What src sends behind the pack may be in the spool
// too. Errors wrap ErrBadPack or are *TooLargeError; those of src and spool are passed on.
func readPack(src io.Reader, spool io.Writer, l Limits, m *transfer.Meter) (*incoming, error) {
	from := &wire{Reader: io.TeeReader(src, spool)}
	p := &incoming{bases: map[int32]ID{}}
	err := p.scan(packfile.NewScanner(from), l, m)
	if err == nil {
		return p, nil
	}
	if from.err != nil {
		return nil, from.err
	}
	if _, large := errors.AsType[*giterr.TooLargeError](err); large {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrBadPack, err)
}

func (p *incoming) scan(s *packfile.Scanner, l Limits, m *transfer.Meter) error {
	_, count, err := s.Header()
	if err != nil {
		return err
	}
	if int64(count) > int64(l.Objects) {
		return &giterr.TooLargeError{Count: true, What: "number of objects", Size: int64(count), Limit: int64(l.Objects)}
	}
	m.Expect(int64(count))
	for i := range count {
		e, err := p.object(s, l.ObjectBytes)
		if err != nil {
			return fmt.Errorf("object %d of %d: %w", i+1, count, err)
		}
		if p.made += max(e.size, e.result); p.made > l.InflatedBytes {
			return &giterr.TooLargeError{What: "inflated size of the pack", Size: p.made, Limit: l.InflatedBytes}
		}
		p.entries = append(p.entries, e)
		m.Object()
	}
	if p.sum, err = s.Checksum(); err != nil {
		return err
	}
	p.size, _ = s.SeekFromStart(0) // the offset so far; the seek itself fails
	return nil
}

// object reads one object: its header, then its content into the hash. Of a delta the two sizes at its head are read.
func (p *incoming) object(s *packfile.Scanner, limit int64) (entry, error) {
	h, err := s.NextObjectHeader()
	if err != nil {
		return entry{}, err
	}
	e := entry{kind: h.Type, base: -1, offset: h.Offset, size: h.Length}
	if e.size > limit {
		return e, &giterr.TooLargeError{What: "object", Size: e.size, Limit: limit}
	}
	var name plumbing.Hasher
	var head headWriter
	var to io.Writer = &head
	switch e.kind {
	case CommitKind, TreeKind, BlobKind, TagKind:
		name, e.result = plumbing.NewHasher(e.kind, e.size), e.size
		to = name
	case RefDeltaKind:
		e.delta = true
		p.bases[int32(len(p.entries))] = h.Reference
	case OfsDeltaKind:
		e.delta = true
		i, found := slices.BinarySearchFunc(p.entries, h.OffsetReference, func(e entry, at int64) int { return cmp.Compare(e.offset, at) })
		if !found {
			return e, errors.New("a delta's base is not an object of the pack")
		}
		e.base = int32(i)
	default:
		return e, errors.New("object of an unknown type")
	}
	n, crc, err := s.NextObject(to)
	switch e.crc = crc; {
	case err != nil:
		return e, err
	case n != e.size:
		return e, errShort
	case !e.delta:
		e.id = name.Sum()
		return e, nil
	}
	if e.result, err = deltaSize(head); err == nil && e.result > limit {
		err = &giterr.TooLargeError{What: "object", Size: e.result, Limit: limit}
	}
	return e, err
}

// headWriter keeps the head of a delta.
type headWriter []byte

func (h *headWriter) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), deltaHead-len(*h))]...)
	return len(p), nil
}
