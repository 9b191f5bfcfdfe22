package repair

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"

	"limpet/state/frame"
)

// Salvage reads what can be verified out of a damaged file.
//
// It walks the tree of the newest transaction. Where that is broken it searches all pages of the
// file for records of the broken place: pages that lost the branch above them, and older copies of
// overwritten ones. A record that was deleted or changed shortly before may so come back as it was,
// which is why the search stays inside the ranges of keys that the damage hides, and why Lost is 0
// only when number and checksums of the result are those that were written. When a head is gone,
// the root is searched for in the same way: each copy of it holds the meta record with the number
// of its transaction.

// Record is one record that was verified. It is valid until the next one.
type Record struct {
	Bucket frame.Bucket
	Key    []byte
	Frame  frame.Frame
}

// Summary is the end of a salvage.
type Summary struct {
	Schema   int    // of the file; 0 = unknown
	Revision uint64 // highest that was seen
	Lost     int    // records known to be missing or uncertain
}

// Salvage emits every record of the file at path that can be verified, each key once, ordered by
// key within a bucket except for those that were found outside the tree. The index of history by
// UID is left out; it is rebuilt. The end of ctx ends it.
func Salvage(ctx context.Context, path string, emit func(Record) error) (Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return Summary{}, fmt.Errorf("salvage: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return Summary{}, fmt.Errorf("salvage: %w", err)
	}
	sum, err := newSalvage(untilDone{ctx, f}, info.Size(), emit).run()
	if ctx.Err() != nil {
		return sum, context.Cause(ctx)
	}
	return sum, err
}

// untilDone reads nothing after the end of its context, so that a search through all pages ends at
// once.
type untilDone struct {
	ctx context.Context
	io.ReaderAt
}

func (r untilDone) ReadAt(p []byte, off int64) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.ReaderAt.ReadAt(p, off)
}

type salvage struct {
	p     *Pages
	heads []Head // sound ones, the newest first
	emit  func(Record) error
	sum   Summary

	carried map[frame.Bucket]frame.Counter   // what was emitted
	keys    map[frame.Bucket]map[string]bool // emitted keys
	gaps    []problem                        // where records are hidden
	m       *frame.Meta                      // of the tree that was walked
}

// newSalvage reads the heads of a file of that size.
func newSalvage(r io.ReaderAt, size int64, emit func(Record) error) *salvage {
	s := &salvage{emit: emit, p: &Pages{R: r, Size: size, Page: os.Getpagesize()}, heads: ReadHeads(r)}
	if len(s.heads) > 0 {
		s.p.Page = s.heads[0].Page
	}
	s.p.High = uint64(size) / uint64(s.p.Page)
	return s
}

func (s *salvage) run() (Summary, error) {
	s.carried = map[frame.Bucket]frame.Counter{}
	s.keys = map[frame.Bucket]map[string]bool{}
	for _, b := range frame.DataBuckets {
		s.keys[b] = map[string]bool{}
	}
	root, sure := s.choose()
	sure = sure && !s.outdated(root)
	if root == 0 {
		s.gaps = []problem{{}}
	} else if err := s.tree(root); err != nil {
		return s.sum, err
	}
	if err := s.orphans(); err != nil {
		return s.sum, err
	}
	s.count(sure)
	return s.sum, nil
}

// choose returns the root page of the last transaction, 0 when there is none, and whether it is
// surely the last: named by the newer of two sound heads, or whole and not older than the one that
// is left.
func (s *salvage) choose() (root uint64, sure bool) {
	var named uint64
	if len(s.heads) > 0 {
		named = s.heads[0].Root
	}
	readable := named != 0 && s.readable(named)
	if readable && twins(s.heads) {
		return named, true
	}
	found := s.findRoots()
	for _, id := range found {
		if r, _, err := s.p.Verify(context.Background(), id); err == nil && len(r.Problems) == 0 && r.schema > 0 {
			return id, id == found[0] && (readable || named == 0)
		}
	}
	switch {
	case readable:
		return named, false
	case len(found) > 0:
		return found[0], false
	}
	return 0, false
}

// readable reports whether a page leads to at least one of our buckets.
func (s *salvage) readable(root uint64) bool {
	page, err := s.p.Read(root)
	if err != nil || page.Flags != LeafPage {
		return false
	}
	for i := range page.count {
		if e, err := page.element(i); err == nil && e.bucket && slices.Contains(frame.DataBuckets, frame.Bucket(e.key)) {
			return true
		}
	}
	return false
}

// outdated reports that the file holds a root of a later transaction, wherever it stands: a page
// that was written to the wrong place leads nowhere, but it proves that something came after the
// tree that is left.
func (s *salvage) outdated(root uint64) bool {
	m, ok := s.rootMeta(root)
	if !ok {
		return false
	}
	buf := make([]byte, s.p.Page)
	for id := range s.p.High {
		if _, err := s.p.R.ReadAt(buf, int64(id)*int64(s.p.Page)); err != nil {
			return false
		}
		page, err := ParsePage(buf)
		if err != nil {
			continue
		}
		if other, ok := metaOf(page); ok && other.Seq > m.Seq {
			return true
		}
	}
	return false
}

func (s *salvage) rootMeta(root uint64) (frame.Meta, bool) {
	page, err := s.p.Read(root)
	if err != nil {
		return frame.Meta{}, false
	}
	return metaOf(page)
}

// metaOf reads the meta record in a root page; it is small enough to always stand in the page
// itself.
func metaOf(page pageOf) (frame.Meta, bool) {
	if page.Flags != LeafPage {
		return frame.Meta{}, false
	}
	for i := range page.count {
		e, err := page.element(i)
		if err != nil || !e.bucket || frame.Bucket(e.key) != frame.MetaBucket {
			continue
		}
		if _, inline, err := e.bucketRoot(); err == nil && inline != nil && inline.count > 0 {
			if e, err := inline.element(0); err == nil && bytes.Equal(e.key, frame.MetaKey) {
				m, err := frame.DecodeMeta(e.value)
				return m, err == nil
			}
		}
	}
	return frame.Meta{}, false
}

// findRoots searches the file for copies of the root page and returns them, that of the newest
// transaction first.
func (s *salvage) findRoots() []uint64 {
	seq := map[uint64]uint64{}
	var roots []uint64
	for id := uint64(2); id < s.p.High; id++ {
		if m, ok := s.rootMeta(id); ok {
			roots = append(roots, id)
			seq[id] = m.Seq
		}
	}
	sort.SliceStable(roots, func(i, j int) bool { return seq[roots[j]] < seq[roots[i]] })
	return roots
}

// tree emits what a walk from root meets and collects the gaps.
func (s *salvage) tree(root uint64) error {
	w := NewWalk(s.p, func(b frame.Bucket, key, raw []byte) error {
		if b == frame.MetaBucket {
			if m, err := frame.DecodeMeta(raw); err == nil {
				s.m = &m
			}
			return nil
		}
		ok, err := s.take(b, key, raw)
		if err == nil && !ok {
			s.gaps = append(s.gaps, problem{bucket: b, low: bytes.Clone(key), high: append(bytes.Clone(key), 0)})
		}
		return err
	})
	err := w.Run(root)
	s.gaps = append(s.gaps, w.problems...)
	for _, b := range frame.DataBuckets {
		// A bucket that lost its place in the root, or records without a visible reason, are a gap from
		// end to end.
		hasGap := slices.ContainsFunc(s.gaps, func(p problem) bool { return p.bucket == b })
		if !slices.Contains(w.buckets, b) || s.m != nil && !s.m.Counters[b].Covers(s.carried[b]) && !hasGap {
			s.gaps = append(s.gaps, problem{bucket: b})
		}
	}
	return err
}

// take emits a record when it is sound and new; ok = it is sound.
func (s *salvage) take(b frame.Bucket, key, raw []byte) (ok bool, err error) {
	if s.keys[b] == nil {
		return true, nil
	}
	f, err := frame.Decode(b, key, raw)
	if err != nil {
		return false, nil
	}
	if b == frame.Objects {
		s.sum.Revision = max(s.sum.Revision, f.Stamp)
	}
	if s.keys[b][string(key)] {
		return true, nil
	}
	s.keys[b][string(key)] = true
	count := s.carried[b]
	count.AddFrame(key, f)
	s.carried[b] = count
	if b == frame.UIDs {
		return true, nil
	}
	return true, s.emit(Record{b, key, f})
}

// count finds how many records are lost. sure = the tree was that of the last transaction.
func (s *salvage) count(sure bool) {
	if s.m == nil {
		s.sum.Lost = 1
		return
	}
	s.sum.Schema = s.m.Schema
	s.sum.Revision = max(s.sum.Revision, s.m.Revision)
	for _, b := range frame.DataBuckets {
		want, have := s.m.Counters[b], s.carried[b]
		if b == frame.UIDs || want.Covers(have) {
			continue
		}
		s.sum.Lost += max(want.N-have.N, 1)
	}
	if !sure && s.sum.Lost == 0 {
		s.sum.Lost = 1
	}
}
