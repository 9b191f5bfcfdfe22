package pack

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sync/errgroup"

	"limpet/sync/git/giterr"
	"limpet/sync/git/transfer"
)

// A pack that comes from the wire is read once: every byte goes into the spool file, every object
// is inflated, named and, a while later, thrown away. Its header has its size, a delta's first bytes
// that of what it makes, so a pack beyond the limits is refused before. Large objects go into a hash
// at once: memory does not depend on their sizes.

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
	to      *Arrivals
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
func readPack(src io.Reader, spool io.Writer, l Limits, m *transfer.Meter, a *Arrivals) (*incoming, error) {
	from := &packReader{Reader: io.TeeReader(src, spool)}
	p := &incoming{to: a, bases: map[int32]ID{}}
	err := p.scan(newStream(from), l, m)
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

func (p *incoming) scan(s *stream, l Limits, m *transfer.Meter) error {
	count, err := s.begin()
	if err != nil {
		return err
	}
	if int64(count) > int64(l.Objects) {
		return &giterr.TooLargeError{Count: true, What: "number of objects", Size: int64(count), Limit: int64(l.Objects)}
	}
	m.Expect(int64(count))
	names := &naming{in: p, near: map[int32]*list.Element{}}
	arrivals := make(chan arrival, 4)
	g, ctx := errgroup.WithContext(context.Background()) // src ends the reading
	g.Go(func() error {
		for a := range arrivals {
			if err := names.add(a); err != nil {
				return fmt.Errorf("object %d of %d: %w", len(p.entries)+1, count, err)
			}
		}
		return nil
	})
	for i := range int(count) {
		a, aerr := p.object(s, i, l)
		if err = aerr; err != nil {
			err = fmt.Errorf("object %d of %d: %w", i+1, count, err)
			break
		}
		select {
		case arrivals <- a:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		m.Object()
	}
	close(arrivals)
	if err := cmp.Or(g.Wait(), err); err != nil {
		return err
	}
	if p.sum, err = s.end(); err != nil {
		return err
	}
	p.size = s.offset()
	return nil
}

// object reads one object: its header, and its content or, of a large one, its name. Of a large
// delta the two sizes at its head are read.
func (p *incoming) object(s *stream, i int, l Limits) (a arrival, err error) {
	h, err := s.next()
	if err != nil {
		return a, err
	}
	e := entry{kind: h.Type, delta: h.Type == OfsDeltaKind || h.Type == RefDeltaKind, base: -1, offset: h.Offset, size: h.Length}
	a.back = h.OffsetReference
	switch e.kind {
	case CommitKind, TreeKind, BlobKind, TagKind, OfsDeltaKind:
	case RefDeltaKind:
		p.bases[int32(i)] = h.Reference
	default:
		return a, errors.New("object of an unknown type")
	}
	if e.size > l.ObjectBytes {
		return a, &giterr.TooLargeError{What: "object", Size: e.size, Limit: l.ObjectBytes}
	}
	var head headWriter
	switch {
	case e.size <= largestNear && e.kind != RefDeltaKind:
		a.data = buffer(e.size)
		err = s.objects.inflateInto(a.data)
		head = a.data[:min(len(a.data), deltaHead)]
	case e.delta:
		err = s.objects.copyTo(&head, e.size)
	default:
		name := plumbing.NewHasher(e.kind, e.size)
		err = s.objects.copyTo(name, e.size)
		e.id = name.Sum()
	}
	if err != nil {
		return a, unexpected(err)
	}
	if e.result = e.size; e.delta {
		if e.result, err = deltaSize(head); err == nil && e.result > l.ObjectBytes {
			err = &giterr.TooLargeError{What: "object", Size: e.result, Limit: l.ObjectBytes}
		}
	}
	s.offset()
	e.crc = s.crc
	if p.made += max(e.size, e.result); err == nil && p.made > l.InflatedBytes {
		err = &giterr.TooLargeError{What: "inflated size of the pack", Size: p.made, Limit: l.InflatedBytes}
	}
	a.entry = e
	return a, err
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
	s := newStream(r)
	count, err := s.begin()
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrBadPack, err)
	}
	if int64(count) > int64(l.Objects) {
		return t, &giterr.TooLargeError{Count: true, What: "number of objects", Size: int64(count), Limit: int64(l.Objects)}
	}
	for range count {
		h, err := s.next()
		if err != nil || ctx.Err() != nil {
			return t, badPack(ctx, err)
		}
		if h.Type == TreeKind || h.Type == BlobKind || h.Length > maxTipBytes {
			return t, nil
		}
		at := h.Offset
		data, err := s.objects.inflate(h)
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
			o.data = make([]byte, size)
			if err := patch(o.data, base.data, data); err != nil {
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
