package repair

import (
	"bytes"
	"maps"
	"slices"

	"limpet/state/frame"
)

// Orphans are records that no tree leads to any more: in leaves whose branch is destroyed, in pages that were given up
// when their records were rewritten, in older copies of a bucket that stood inside the root. The checksum of a frame
// identifies its bucket.

// orphans searches all pages for records that belong into the gaps and takes the newest copy of each.
func (s *salvage) orphans() error {
	if len(s.gaps) == 0 {
		return nil
	}
	found := map[frame.Bucket]map[string][]byte{}
	for id := uint64(2); id < s.p.High; id++ {
		page, err := s.p.Read(id)
		if err != nil || page.Flags != LeafPage {
			continue
		}
		s.sift(page, "", found)
	}
	for _, b := range frame.DataBuckets {
		for _, k := range slices.Sorted(maps.Keys(found[b])) {
			if _, err := s.take(b, []byte(k), found[b][k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// sift collects from a leaf page the records that fit a gap. in is the bucket of an inline page, else empty.
func (s *salvage) sift(page pageOf, in frame.Bucket, found map[frame.Bucket]map[string][]byte) {
	for i := range page.count {
		e, err := page.element(i)
		if err != nil {
			continue
		}
		if e.bucket {
			if _, inline, err := e.bucketRoot(); err == nil && inline != nil && in == "" {
				s.sift(*inline, frame.Bucket(e.key), found)
			}
			continue
		}
		b, f, ok := s.belongs(e, in)
		if !ok || s.keys[b][string(e.key)] || !s.inGap(b, e.key) {
			continue
		}
		if found[b] == nil {
			found[b] = map[string][]byte{}
		}
		if old, ok := found[b][string(e.key)]; ok {
			if was, err := frame.Decode(b, e.key, old); err == nil && was.Stamp >= f.Stamp {
				continue
			}
		}
		found[b][string(e.key)] = bytes.Clone(e.value)
	}
}

// belongs finds the bucket of a record by its checksum.
func (s *salvage) belongs(e element, in frame.Bucket) (frame.Bucket, frame.Frame, bool) {
	if frame.Shape(e.value) != nil {
		return "", frame.Frame{}, false
	}
	sum := frame.ContentSum(e.value)
	for _, b := range frame.DataBuckets {
		if in != "" && b != in || frame.KeySum(sum, b, e.key) != frame.Checksum(e.value) {
			continue
		}
		f, err := frame.Decode(b, e.key, e.value)
		return b, f, err == nil
	}
	return "", frame.Frame{}, false
}

func (s *salvage) inGap(b frame.Bucket, key []byte) bool {
	return slices.ContainsFunc(s.gaps, func(p problem) bool {
		return (p.bucket == "" || p.bucket == b) && bytes.Compare(key, p.low) >= 0 && (p.high == nil || bytes.Compare(key, p.high) < 0)
	})
}
