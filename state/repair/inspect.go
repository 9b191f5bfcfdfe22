package repair

import (
	"context"
	"fmt"
	"os"
	"slices"

	"limpet/state/frame"
)

// Findings are what a verification of a whole file brought up.
type Findings struct {
	foreign  bool // sound, but of another program
	schema   int  // 0 when the meta record cannot be read
	Frames   int
	Problems []string
}

// ctxEvery is how many records are read between two checks of the context.
const ctxEvery = 256

// maxProblems bounds a report; one bad page can hide thousands of records.
const maxProblems = 50

func (r *Findings) note(text string) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, text)
	}
}

// Inspect verifies a closed file without bbolt.
func Inspect(ctx context.Context, path string, want int) error {
	f, err := os.Open(path)
	if err != nil {
		return frame.Classify(fmt.Errorf("verify state: %w", err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("verify state: %w", err)
	}
	p := &Pages{R: f, Size: info.Size()}
	metas := ReadHeads(f)
	if len(metas) == 0 {
		return frame.Corrupt("neither head of the file is sound")
	}
	head := metas[0]
	if !twins(metas) && head.version == boltVersion {
		// bbolt would go on with the other and so, half of the time, without the last transaction. A head
		// lies inside one sector, an interrupted write does not explain it.
		return frame.Corrupt("one of the two heads is damaged")
	}
	if head.version != boltVersion {
		return fmt.Errorf("verify state: %s has version %d of the bbolt format, this program knows %d", path, head.version, boltVersion)
	}
	p.Page, p.High = head.Page, head.High
	if p.Size < int64(p.High)*int64(p.Page) {
		return frame.Corrupt("file has %d bytes of %d", p.Size, int64(p.High)*int64(p.Page))
	}
	r, w, err := p.Verify(ctx, head.Root)
	if err != nil {
		return err
	}
	if head.Freelist != NoFreelist {
		p.verifyFree(head.Freelist, w.Seen, &r)
	}
	switch {
	case r.schema > want:
		return &frame.SchemaError{Have: r.schema, Want: want, Path: path}
	case len(r.Problems) > 0:
		return frame.Corrupt("%s", r.Problems[0])
	case r.foreign:
		return fmt.Errorf("%s: %w", path, frame.ErrForeign)
	}
	return nil
}

// Verify walks the tree and checks every frame and counter. The error is the context's.
func (p *Pages) Verify(ctx context.Context, root uint64) (Findings, *walk, error) {
	var (
		r    Findings
		m    *frame.Meta
		met  = map[frame.Bucket]frame.Counter{}
		bad  []string
		seen int
	)
	w := NewWalk(p, func(b frame.Bucket, key, raw []byte) error {
		if seen++; seen%ctxEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f, err := frame.Decode(b, key, raw)
		switch {
		case err != nil && len(bad) < maxProblems:
			bad = append(bad, err.Error())
		case err == nil && b == frame.MetaBucket:
			if got, err := frame.DecodeMeta(raw); err == nil {
				m = &got
			}
		case err == nil:
			r.Frames++
			c := met[b]
			c.AddFrame(key, f)
			met[b] = c
		}
		return nil
	})
	if err := w.Run(root); err != nil {
		return r, w, err
	}
	for _, problem := range w.problems {
		r.note(problem.String())
	}
	ours := slices.ContainsFunc(w.buckets, func(b frame.Bucket) bool { return b == frame.MetaBucket || slices.Contains(frame.DataBuckets, b) })
	if len(r.Problems) == 0 && !ours {
		// A bbolt file without buckets is ours: its maker was stopped before the first write.
		r.foreign = len(w.buckets) > 0
		return r, w, nil
	}
	if m == nil {
		r.note("meta record is missing or damaged")
	}
	for _, text := range bad {
		r.note(text)
	}
	if m != nil {
		r.schema = m.Schema
		r.compare(m.Counters, met)
	}
	return r, w, nil
}

// compare holds what was met against what was written.
func (r *Findings) compare(want map[frame.Bucket]frame.Counter, met map[frame.Bucket]frame.Counter) {
	for _, b := range frame.DataBuckets {
		if want, have := want[b], met[b]; !want.Covers(have) {
			r.note(fmt.Sprintf("%s: %d records of %d, %d bytes of %d, or one is not the last that was written", b, have.N, want.N,
				have.Bytes, want.Bytes))
		}
	}
}

// verifyFree holds the list of free pages against the pages in use: each page is one or the other.
func (p *Pages) verifyFree(id uint64, used bitset, r *Findings) {
	ids, list, err := p.freeIDs(id)
	if err != nil {
		r.note(err.Error())
		return
	}
	all := slices.Clone(used)
	mark := func(id uint64, what string) {
		if id < 2 || id >= p.High {
			r.note(fmt.Sprintf("page %d: %s, outside of the file", id, what))
		} else if all.set(id) {
			r.note(fmt.Sprintf("page %d: %s, but in use or listed twice", id, what))
		}
	}
	for n := range list.overflow + 1 {
		mark(list.Id+n, "free list")
	}
	for _, id := range ids {
		mark(id, "free")
	}
	for id := uint64(2); id < p.High; id++ {
		if !all.Has(id) {
			r.note(fmt.Sprintf("page %d: neither used nor free", id))
		}
	}
}
