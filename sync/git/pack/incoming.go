package pack

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"limpet/sync/git/giterr"
	"limpet/sync/git/transfer"
)

// A pack that comes from the wire is read once: every byte goes into the spool file, every object
// is inflated into a hash and thrown away. Its header has its size, a delta's first bytes that of
// what it makes, so a pack beyond the limits is refused before. Memory does not depend on the
// objects' sizes.

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

// packReader remembers the error of a reader.
type packReader struct {
	io.Reader
	err error
}

func (w *packReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// readPack copies a pack from src to spool and examines it. What src sends behind the pack may be
// in the spool too. Errors wrap ErrBadPack or are *TooLargeError; those of src and spool are passed
// on.
func readPack(src io.Reader, spool io.Writer, l Limits, m *transfer.Meter) (*incoming, error) {
	from := &packReader{Reader: io.TeeReader(src, spool)}
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

// object reads one object: its header, then its content into the hash. Of a delta the two sizes at
// its head are read.
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

// Sealed reports whether a pack, to its end, has the checksum that stands there.
func Sealed(ctx context.Context, r *io.SectionReader) (bool, error) {
	var sum ID
	end := r.Size() - int64(len(sum))
	if end < 0 {
		return false, nil
	}
	if _, err := r.ReadAt(sum[:], end); err != nil {
		return false, err
	}
	h := newSum()
	for left := end; left > 0 && ctx.Err() == nil; {
		n, err := io.CopyN(h, r, min(left, 8<<20))
		if left -= n; err != nil {
			return false, err
		}
	}
	return ID(h.Sum(nil)) == sum, context.Cause(ctx)
}

// Tips are the commits and tags at the beginning of a pack, where git and limpet put them.
type Tips struct {
	Last   time.Time // commit time of the newest commit; zero = unknown
	Newest []ID      // the commits of that time, at most maxNewest
	Tags   map[ID]ID // objects that annotated tags point to, at most maxTagTargets
}

const (
	maxNewest     = 100
	maxTagTargets = 100_000
)

// maxTipBytes bounds one commit or tag, and how many bytes of them are kept for the deltas among
// them.
const maxTipBytes = 16 << 20

// ReadTips reads a pack up to its first tree or file. Deltas of objects that were not kept are
// passed over.
func ReadTips(ctx context.Context, r io.Reader, l Limits) (Tips, error) {
	type object struct {
		kind Kind
		data []byte
	}
	t := Tips{Tags: map[ID]ID{}}
	kept := map[int64]object{}
	held := 0
	s := packfile.NewScanner(bufio.NewReaderSize(r, 64<<10))
	_, count, err := s.Header()
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrBadPack, err)
	}
	if int64(count) > int64(l.Objects) {
		return t, &giterr.TooLargeError{Count: true, What: "number of objects", Size: int64(count), Limit: int64(l.Objects)}
	}
	for range count {
		h, err := s.NextObjectHeader()
		if err != nil || ctx.Err() != nil {
			return t, badPack(ctx, err)
		}
		if h.Type == TreeKind || h.Type == BlobKind || h.Length > maxTipBytes {
			return t, nil
		}
		at := h.Offset
		data, err := inflate(s, h)
		if err != nil {
			return t, badPack(ctx, err)
		}
		o := object{h.Type, data}
		if h.Type == OfsDeltaKind || h.Type == RefDeltaKind {
			base, known := kept[h.OffsetReference]
			size, err := deltaSize(data)
			if !known || err != nil || size > maxTipBytes {
				continue
			}
			if o.data, err = packfile.PatchDelta(base.data, data); err != nil {
				return t, badPack(ctx, err)
			}
			o.kind = base.kind
		}
		if held += len(o.data); held < maxTipBytes {
			kept[at] = o
		}
		t.see(o.kind, o.data)
	}
	return t, nil
}

func badPack(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrBadPack, err)
}

// see takes a commit or a tag.
func (t *Tips) see(kind Kind, data []byte) {
	if kind == TagKind {
		if target, err := ParseTag(data); err == nil && len(t.Tags) < maxTagTargets {
			t.Tags[IDOf(kind, data)] = target
		}
		return
	}
	at := CommitTime(data)
	if at.After(t.Last) {
		t.Last, t.Newest = at, nil
	}
	if at.Equal(t.Last) && len(t.Newest) < maxNewest {
		t.Newest = append(t.Newest, IDOf(kind, data))
	}
}

// CommitTime is the time of the committer of a raw commit, zero when it is malformed.
func CommitTime(data []byte) (at time.Time) {
	head, _, _ := bytes.Cut(data, []byte("\n\n"))
	for line := range bytes.Lines(head) {
		if f := bytes.Fields(line); bytes.HasPrefix(line, []byte("committer ")) && len(f) > 2 {
			if sec, err := strconv.ParseInt(string(f[len(f)-2]), 10, 64); err == nil {
				at = time.Unix(sec, 0)
			}
		}
	}
	return at
}
