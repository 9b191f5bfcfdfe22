package state

import (
	"bytes"
	"slices"
)

// Orphans are records that no tree leads to any more: in leaves whose branch is destroyed, in pages that were given up
// when their records were written anew, in older copies of a bucket that stood inside the root. The checksum of a frame
// tells the bucket that it belongs to.

// orphans searches all pages for records that belong into the gaps and takes the newest copy of each.
func (s *salvage) orphans() error {
	if len(s.gaps) == 0 {
		return nil
	}
	found := map[bucket]map[string][]byte{}
	for id := uint64(2); id < s.p.high; id++ {
		page, err := s.p.read(id)
		if err != nil || page.flags != leafPage {
			continue
		}
		s.sift(page, "", found)
	}
	for _, b := range dataBuckets {
		keys := make([]string, 0, len(found[b]))
		for k := range found[b] {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if _, err := s.take(b, []byte(k), found[b][k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// sift collects from a leaf page the records that fit a gap. in is the bucket of an inline page, else empty.
func (s *salvage) sift(page pageOf, in bucket, found map[bucket]map[string][]byte) {
	for i := range page.count {
		e, err := page.element(i)
		if err != nil {
			continue
		}
		if e.bucket {
			if _, inline, err := e.bucketRoot(); err == nil && inline != nil && in == "" {
				s.sift(*inline, bucket(e.key), found)
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
			if was, err := decodeFrame(b, e.key, old); err == nil && was.stamp >= f.stamp {
				continue
			}
		}
		found[b][string(e.key)] = bytes.Clone(e.value)
	}
}

// belongs finds the bucket of a record by its checksum.
func (s *salvage) belongs(e element, in bucket) (bucket, frame, bool) {
	if frameShape(e.value) != nil {
		return "", frame{}, false
	}
	sum := content(e.value)
	for _, b := range dataBuckets {
		if in != "" && b != in || place(sum, b, e.key) != frameSum(e.value) {
			continue
		}
		f, err := decodeFrame(b, e.key, e.value)
		return b, f, err == nil
	}
	return "", frame{}, false
}

func (s *salvage) inGap(b bucket, key []byte) bool {
	return slices.ContainsFunc(s.gaps, func(p problem) bool {
		return (p.bucket == "" || p.bucket == b) && bytes.Compare(key, p.low) >= 0 && (p.high == nil || bytes.Compare(key, p.high) < 0)
	})
}
