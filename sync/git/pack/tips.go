package pack

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"limpet/sync/git/giterr"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

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
	Last time.Time // commit time of the newest commit; zero = unknown
	Tags map[ID]ID // objects that annotated tags point to
}

// maxTipBytes bounds one commit or tag, and how many bytes of them are kept for the deltas among them.
const maxTipBytes = 16 << 20

// ReadTips reads a pack up to its first tree or file. Deltas of objects that were not kept are passed over.
func ReadTips(ctx context.Context, r io.Reader, l Limits) (Tips, error) {
	type object struct {
		kind Kind
		data []byte
	}
	t, kept, held := Tips{Tags: map[ID]ID{}}, map[int64]object{}, 0
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
		if target, err := ParseTag(data); err == nil {
			t.Tags[IDOf(kind, data)] = target
		}
		return
	}
	if at := CommitTime(data); at.After(t.Last) {
		t.Last = at
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
