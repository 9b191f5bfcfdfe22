package state

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// findings are what a verification of a whole file brought up.
type findings struct {
	empty    bool // a bbolt file without buckets: its maker was stopped before the first write
	foreign  bool // sound, but of another program
	schema   int  // 0 when the meta record cannot be read
	frames   int
	problems []string
}

// maxProblems bounds a report; one bad page can hide thousands of records.
const maxProblems = 50

func (r *findings) note(text string) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, text)
	}
}

// verdict turns findings into the error that Open decides by, for a program that knows schemas up to want.
func (r findings) verdict(path string, want int) error {
	switch {
	case r.schema > want:
		return &SchemaError{Have: r.schema, Want: want, Path: path}
	case len(r.problems) > 0:
		return corrupt("%s", r.problems[0])
	case r.foreign:
		return fmt.Errorf("%s: %w", path, ErrForeign)
	}
	return nil
}

// inspectFile verifies a closed file without bbolt.
func inspectFile(ctx context.Context, path string, want int) error {
	f, err := os.Open(path)
	if err != nil {
		return classify(fmt.Errorf("verify state: %w", err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("verify state: %w", err)
	}
	p := &pages{r: f, size: info.Size()}
	metas := readMetas(f)
	if len(metas) == 0 {
		return corrupt("neither head of the file is sound")
	}
	head := metas[0]
	if !twins(metas) && head.version == boltVersion {
		// bbolt would go on with the other and so, half of the time, without the last transaction. A head lies inside one
		// sector, an interrupted write does not explain it.
		return corrupt("one of the two heads is damaged")
	}
	if head.version != boltVersion {
		return fmt.Errorf("verify state: %s has version %d of the bbolt format, this program knows %d", path, head.version, boltVersion)
	}
	p.page, p.high = head.page, head.high
	if p.size < int64(p.high)*int64(p.page) {
		return corrupt("file has %d bytes of %d", p.size, int64(p.high)*int64(p.page))
	}
	r, w, err := p.verify(ctx, head.root)
	if err != nil {
		return err
	}
	if head.freelist != noFreelist {
		p.verifyFree(head.freelist, w.seen, &r)
	}
	return r.verdict(path, want)
}

// verify walks the tree and checks every frame and tally. The error is the context's.
func (p *pages) verify(ctx context.Context, root uint64) (findings, *walk, error) {
	var (
		r    findings
		m    *meta
		met  = map[bucket]*tally{}
		bad  []string
		seen int
	)
	w := newWalk(p, func(b bucket, key, raw []byte) error {
		if seen++; seen%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f, err := decodeFrame(b, key, raw)
		switch {
		case err != nil && len(bad) < maxProblems:
			bad = append(bad, err.Error())
		case err == nil && b == metaBucket:
			if got, err := decodeMeta(raw); err == nil {
				m = &got
			}
		case err == nil:
			r.frames++
			if met[b] == nil {
				met[b] = &tally{}
			}
			met[b].meet(key, f)
		}
		return nil
	})
	if err := w.run(root); err != nil {
		return r, w, err
	}
	for _, problem := range w.problems {
		r.note(problem.String())
	}
	ours := slices.ContainsFunc(w.buckets, func(b bucket) bool { return b == metaBucket || slices.Contains(dataBuckets, b) })
	switch {
	case len(r.problems) == 0 && len(w.buckets) == 0:
		r.empty = true
		return r, w, nil
	case len(r.problems) == 0 && !ours:
		r.foreign = true
		return r, w, nil
	case m == nil:
		r.note("meta record is missing or damaged")
	default:
		r.schema = m.Schema
	}
	for _, text := range bad {
		r.note(text)
	}
	if m != nil {
		r.compare(m.Tallies, met)
	}
	return r, w, nil
}

// compare holds what was met against what was written.
func (r *findings) compare(want map[bucket]tally, met map[bucket]*tally) {
	for _, b := range dataBuckets {
		var have tally
		if met[b] != nil {
			have = *met[b]
		}
		switch {
		case have.N != want[b].N:
			r.note(fmt.Sprintf("%s: %d records of %d", b, have.N, want[b].N))
		case have.Sum != want[b].Sum:
			r.note(fmt.Sprintf("%s: a record is not the last that was written", b))
		case !want[b].covers(have):
			r.note(fmt.Sprintf("%s: %d bytes of %d", b, have.Bytes, want[b].Bytes))
		}
	}
}

// verifyFree holds the list of free pages against the pages in use: each page is one or the other.
func (p *pages) verifyFree(id uint64, used bitset, r *findings) {
	ids, list, err := p.freeIDs(id)
	if err != nil {
		r.note(err.Error())
		return
	}
	all := slices.Clone(used)
	mark := func(id uint64, what string) {
		if id < 2 || id >= p.high {
			r.note(fmt.Sprintf("page %d: %s, outside of the file", id, what))
		} else if all.set(id) {
			r.note(fmt.Sprintf("page %d: %s, but in use or listed twice", id, what))
		}
	}
	for n := range list.overflow + 1 {
		mark(list.id+n, "free list")
	}
	for _, id := range ids {
		mark(id, "free")
	}
	for id := uint64(2); id < p.high; id++ {
		if !all.has(id) {
			r.note(fmt.Sprintf("page %d: neither used nor free", id))
		}
	}
}
