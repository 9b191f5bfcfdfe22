package repair

import (
	"bytes"
	"fmt"
	"slices"

	"limpet/state/frame"
)

// A walk goes through the tree of a bbolt file from a root page and meets every record once. What
// is damaged becomes a problem with the range of keys that it hides, and the walk goes on beside
// it.

// problem is one damaged place.
type problem struct {
	bucket    frame.Bucket // empty above the buckets
	low, high []byte       // keys that are hidden: low <= key < high; nil = open
	text      string
}

func (p problem) String() string {
	if p.bucket == "" {
		return p.text
	}
	return fmt.Sprintf("%s: %s", p.bucket, p.text)
}

// walk is one passage. visit sees each record; its slices are only valid during the call.
type walk struct {
	p        *Pages
	visit    func(b frame.Bucket, key, raw []byte) error
	Seen     bitset // pages that were met
	buckets  []frame.Bucket
	problems []problem
	stopped  error // of visit
}

// maxDepth is deeper than any tree of 2^40 pages.
const maxDepth = 64

func NewWalk(p *Pages, visit func(b frame.Bucket, key, raw []byte) error) *walk {
	return &walk{p: p, visit: visit, Seen: make(bitset, p.High/64+1)}
}

// Run walks from a root page. The error is visit's; damage is in problems.
func (w *walk) Run(root uint64) error {
	w.tree("", root, nil, nil, 0)
	return w.stopped
}

// maxPlaces bounds the list of problems; beyond it a bucket counts as hidden from end to end.
const maxPlaces = 1000

func (w *walk) note(b frame.Bucket, low, high []byte, format string, args ...any) {
	if len(w.problems) >= maxPlaces {
		if !slices.ContainsFunc(w.problems[maxPlaces:], func(p problem) bool { return p.bucket == b }) {
			w.problems = append(w.problems, problem{bucket: b, text: "and more"})
		}
		return
	}
	w.problems = append(w.problems, problem{b, bytes.Clone(low), bytes.Clone(high), fmt.Sprintf(format, args...)})
}

// tree walks the page id, which holds keys from low up to high (nil = open) of bucket b.
func (w *walk) tree(b frame.Bucket, id uint64, low, high []byte, depth int) {
	if w.stopped != nil {
		return
	}
	if w.Seen.Has(id) {
		w.note(b, low, high, "page %d: used twice", id)
		return
	}
	page, err := w.p.Read(id)
	if err != nil {
		w.note(b, low, high, "%s", err)
		return
	}
	for n := range page.overflow + 1 {
		if w.Seen.set(id + n) {
			w.note(b, low, high, "page %d: used twice", id+n)
			return
		}
	}
	switch {
	case depth > maxDepth:
		w.note(b, low, high, "page %d: tree too deep", id)
	case page.Flags == LeafPage:
		w.leaf(b, page, low, high)
	case page.Flags == BranchPage:
		w.branch(b, page, low, high, depth)
	default:
		w.note(b, low, high, "page %d: unexpected type %#x", id, page.Flags)
	}
}

func (w *walk) branch(b frame.Bucket, page pageOf, low, high []byte, depth int) {
	if page.count == 0 {
		w.note(b, low, high, "page %d: branch without children", page.Id)
		return
	}
	// All entries first: the key of the next is the end of this child's range.
	entries := make([]element, 0, page.count)
	last := low
	for i := range page.count {
		e, err := page.element(i)
		if err == nil && !inOrder(last, e.key, high, i == 0) {
			err = fmt.Errorf("page %d: entry %d out of order", page.Id, i)
		}
		if err != nil {
			w.note(b, last, high, "%s", err)
			if len(entries) == 0 {
				return
			}
			high = last
			entries = entries[:len(entries)-1]
			break
		}
		entries = append(entries, e)
		last = e.key
	}
	for i, e := range entries {
		end := high
		if i+1 < len(entries) {
			end = entries[i+1].key
		}
		w.tree(b, e.child, e.key, end, depth+1)
	}
}

// inOrder reports whether key follows last and stays below high. The first key of a page is the
// separator above it: bbolt finds a page in its parent by that key when it writes, and where they
// differ it puts the page in twice.
func inOrder(last, key, high []byte, first bool) bool {
	switch c := bytes.Compare(last, key); {
	case first && last != nil && c != 0, !first && c >= 0:
		return false
	}
	return high == nil || bytes.Compare(key, high) < 0
}

// leaf visits the entries of a leaf. One that stands in the wrong place is a problem, but is
// visited all the same: its frame reports whether it is sound.
func (w *walk) leaf(b frame.Bucket, page pageOf, low, high []byte) {
	last := low
	for i := range page.count {
		e, err := page.element(i)
		switch {
		case err != nil:
			w.note(b, last, high, "%s", err)
			continue
		case !inOrder(last, e.key, high, i == 0):
			w.note(b, last, high, "page %d: entry %d out of order", page.Id, i)
		default:
			last = e.key
		}
		switch {
		case e.bucket && b == "":
			b := frame.Bucket(e.key)
			w.buckets = append(w.buckets, b)
			root, inline, err := e.bucketRoot()
			switch {
			case err != nil:
				w.note(b, nil, nil, "%s", err)
			case inline != nil:
				w.leaf(b, *inline, nil, nil)
			default:
				w.tree(b, root, nil, nil, 0)
			}
		case e.bucket || b == "":
			w.note(b, e.key, append(bytes.Clone(e.key), 0), "page %d: entry %d of the wrong kind", page.Id, i)
		default:
			w.stopped = w.visit(b, e.key, e.value)
		}
		if w.stopped != nil {
			return
		}
	}
}

// bitset remembers pages.
type bitset []uint64

// set marks i and reports whether it was marked before.
func (s bitset) set(i uint64) bool {
	was := s.Has(i)
	if i/64 < uint64(len(s)) {
		s[i/64] |= 1 << (i % 64)
	}
	return was
}

func (s bitset) Has(i uint64) bool { return i/64 < uint64(len(s)) && s[i/64]&(1<<(i%64)) != 0 }
