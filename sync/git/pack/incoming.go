package pack

import (
	"cmp"
	"crypto"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"limpet/sync/git/giterr"

	"github.com/go-git/go-git/v5/plumbing/hash"
)

// A pack that comes from the wire is read once: every byte goes into the spool
// file, every object is inflated into a hash and thrown away. The header of an
// object tells its size before anything of it is inflated, a delta's first
// bytes tell the size of what it makes; a pack that goes beyond the limits is
// refused there and then. Memory does not depend on the objects' sizes.

// entry is one object of a pack.
type entry struct {
	id     ID
	kind   Kind  // as stored; of the result once a delta is resolved
	delta  bool  // stored as a delta
	head   uint8 // bytes of its header, before the zlib stream
	crc    uint32
	base   int32 // index of the entry that an ofs-delta builds on, else -1
	offset int64
	size   int64 // of the zlib stream's content
	result int64 // of the object
}

// incoming is a pack whose bytes lie in the spool file.
type incoming struct {
	entries []entry
	made    int64        // bytes of all objects, inflated
	bases   map[int32]ID // entries that are deltas against an object by name
	size    int64        // of the pack with its trailer
	sum     ID           // the trailer
}

// readPack copies a pack from src to spool and takes stock of it. Errors wrap
// ErrBadPack or are *TooLargeError; those of src and spool are passed on.
func readPack(src io.Reader, spool io.Writer, l Limits) (*incoming, error) {
	s := &packStream{src: src, spool: spool, sum: hash.New(crypto.SHA1)}
	p, err := s.scan(l)
	if err != nil {
		if s.err != nil && s.err != io.EOF { // the wire or the disk, not the pack
			return nil, s.err
		}
		if _, large := errors.AsType[*giterr.TooLargeError](err); large || errors.Is(err, ErrBadPack) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrBadPack, err)
	}
	return p, nil
}

func (s *packStream) scan(l Limits) (*incoming, error) {
	var head [12]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return nil, fmt.Errorf("%w: it ends in its header", ErrBadPack)
	}
	version, count := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
	if string(head[:4]) != "PACK" || version != 2 && version != 3 {
		return nil, fmt.Errorf("%w: it does not begin like a pack", ErrBadPack)
	}
	if int64(count) > int64(l.Objects) {
		return nil, &giterr.TooLargeError{Count: true, What: "number of objects", Size: int64(count), Limit: int64(l.Objects)}
	}
	p := &incoming{bases: make(map[int32]ID)}
	h := newIDHasher()
	buf := make([]byte, 32<<10)
	for range count {
		e, err := s.object(p, h, buf, l)
		if err != nil {
			return nil, fmt.Errorf("object %d of %d: %w", len(p.entries)+1, count, err)
		}
		p.made += max(e.size, e.result)
		if p.made > l.InflatedBytes {
			return nil, &giterr.TooLargeError{What: "inflated size of the pack", Size: p.made, Limit: l.InflatedBytes}
		}
		p.entries = append(p.entries, e)
	}
	s.checksum()
	want := s.sum.Sum(nil)
	if _, err := io.ReadFull(s, p.sum[:]); err != nil {
		return nil, fmt.Errorf("%w: it ends before its checksum", ErrBadPack)
	}
	if string(want) != string(p.sum[:]) {
		return nil, fmt.Errorf("%w: checksum mismatch", ErrBadPack)
	}
	p.size = s.offset()
	return p, s.flush()
}

// object reads one object: its header, then its content into the hash.
func (s *packStream) object(p *incoming, h *idHasher, buf []byte, l Limits) (entry, error) {
	s.checksum()
	s.crc = 0
	e := entry{base: -1, offset: s.offset()}
	head, back, err := readHeader(s)
	if err != nil {
		return e, err
	}
	e.kind, e.size = head.kind, head.size
	if e.size > l.ObjectBytes {
		return e, &giterr.TooLargeError{What: "object", Size: e.size, Limit: l.ObjectBytes}
	}
	switch e.kind {
	case RefDeltaKind:
		e.delta = true
		p.bases[int32(len(p.entries))] = head.name
	case OfsDeltaKind:
		e.delta = true
		i, found := slices.BinarySearchFunc(p.entries, e.offset-back, func(e entry, at int64) int { return cmp.Compare(e.offset, at) })
		if !found {
			return e, fmt.Errorf("%w: a delta's base is not an object of the pack", ErrBadPack)
		}
		e.base = int32(i)
	default:
		e.result = e.size
		h.begin(e.kind, e.size)
	}
	e.head = uint8(s.offset() - e.offset)
	err = withInflater(s, func(z io.Reader) error { return drain(z, &e, h, buf, l) })
	if err != nil {
		return e, err
	}
	if !e.delta {
		e.id = h.id()
	}
	s.checksum()
	e.crc = s.crc
	return e, nil
}

// drain inflates the content of e and keeps nothing of it: it goes into the
// hash, and of a delta the two sizes at its head are read.
func drain(z io.Reader, e *entry, h *idHasher, buf []byte, l Limits) error {
	left := e.size
	if e.delta {
		n, err := io.ReadFull(z, buf[:min(left, 20)]) // 20 bytes hold both sizes
		if err != nil {
			return err
		}
		left -= int64(n)
		if _, e.result, _, err = deltaSizes(buf[:n]); err != nil {
			return err
		}
		if e.result > l.ObjectBytes {
			return &giterr.TooLargeError{What: "object", Size: e.result, Limit: l.ObjectBytes}
		}
	}
	for left > 0 {
		n, err := z.Read(buf[:min(left, int64(len(buf)))])
		left -= int64(n)
		if !e.delta {
			h.Write(buf[:n])
		}
		if err == io.EOF && left > 0 {
			return io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return atEnd(z)
}

// packStream is a buffered reader that copies what was consumed to the spool
// and keeps two running checksums over it, in large steps.
type packStream struct {
	src   io.Reader
	spool io.Writer
	sum   hash.Hash // of the whole pack
	crc   uint32    // of the present object
	err   error     // of src or spool, sticky

	buf     [32 << 10]byte
	r, w    int   // consumed and filled part of buf
	settled int   // part of buf that is in both checksums
	before  int64 // bytes before buf
}

func (s *packStream) offset() int64 { return s.before + int64(s.r) }

// checksum brings the checksums up to what was consumed.
func (s *packStream) checksum() {
	part := s.buf[s.settled:s.r]
	s.sum.Write(part)
	s.crc = crc32.Update(s.crc, crc32.IEEETable, part)
	s.settled = s.r
}

// flush writes what was consumed and not yet written.
func (s *packStream) flush() error {
	s.checksum()
	_, err := s.spool.Write(s.buf[:s.r])
	if err != nil {
		s.err = err
	}
	s.before += int64(s.r)
	copy(s.buf[:], s.buf[s.r:s.w])
	s.r, s.w, s.settled = 0, s.w-s.r, 0
	return err
}

func (s *packStream) fill() error {
	if s.err != nil {
		return s.err
	}
	if err := s.flush(); err != nil {
		return err
	}
	for empty := 0; s.w == 0; empty++ {
		n, err := s.src.Read(s.buf[:])
		s.w = n
		if err != nil {
			s.err = err
			if n == 0 {
				return err
			}
		}
		if empty == 100 {
			return io.ErrNoProgress
		}
	}
	return nil
}

func (s *packStream) Read(p []byte) (int, error) {
	if s.r == s.w {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.buf[s.r:s.w])
	s.r += n
	return n, nil
}

func (s *packStream) ReadByte() (byte, error) {
	if s.r == s.w {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	b := s.buf[s.r]
	s.r++
	return b, nil
}
