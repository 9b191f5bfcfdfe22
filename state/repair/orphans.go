package repair

import (
	"bytes"
	"maps"
	"slices"

	"limpet/state/frame"
)

// Orphans are records that no tree leads to any more: in leaves whose branch is destroyed, in pages
// that were given up when their records were rewritten, in older copies of a bucket that stood
// inside the root. The checksum of a frame identifies its bucket.

// orphans searches all pages for records that belong into the gaps and takes the newest copy of
// each. Until then it holds only their keys and places.
func (s *salvage) orphans() error {
	if len(s.gaps) == 0 {
		return nil
	}
	type place struct{ page, stamp uint64 }
	found := map[frame.Bucket]map[string]place{}
	for id := uint64(2); id < s.p.High; id++ {
		_ = s.sift(id, nil, func(b frame.Bucket, e element, f frame.Frame) error {
			if found[b] == nil {
				found[b] = map[string]place{}
			}
			if was, ok := found[b][string(e.key)]; !ok || was.stamp < f.Stamp {
				found[b][string(e.key)] = place{id, f.Stamp}
			}
			return nil
		})
	}
	for _, b := range frame.DataBuckets {
		for _, k := range slices.Sorted(maps.Keys(found[b])) {
			at := found[b][k]
			err := s.sift(at.page, []byte(k), func(in frame.Bucket, e element, f frame.Frame) error {
				if in != b || f.Stamp != at.stamp {
					return nil
				}
				_, err := s.take(b, e.key, e.value)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sift visits the records of a leaf page that fit a gap, of one key or (nil) of all. The error is
// visit's.
func (s *salvage) sift(id uint64, key []byte, visit func(frame.Bucket, element, frame.Frame) error) error {
	page, err := s.p.Read(id)
	if err != nil || page.Flags != LeafPage {
		return nil
	}
	return s.siftPage(page, "", key, visit)
}

// siftPage is sift of a page that was read. in is the bucket of an inline page, else empty.
func (s *salvage) siftPage(page pageOf, in frame.Bucket, key []byte, visit func(frame.Bucket, element, frame.Frame) error) error {
	for i := range page.count {
		e, err := page.element(i)
		if err != nil {
			continue
		}
		if e.bucket {
			if _, inline, err := e.bucketRoot(); err == nil && inline != nil && in == "" {
				if err := s.siftPage(*inline, frame.Bucket(e.key), key, visit); err != nil {
					return err
				}
			}
			continue
		}
		if key != nil && !bytes.Equal(e.key, key) {
			continue
		}
		b, f, ok := s.belongs(e, in)
		if !ok || s.keys[b][string(e.key)] || !s.inGap(b, e.key) {
			continue
		}
		if err := visit(b, e, f); err != nil {
			return err
		}
	}
	return nil
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
