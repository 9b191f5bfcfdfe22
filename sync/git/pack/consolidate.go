package pack

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// MaxPacks is how many packs a mirror gathers before they are put together:
// every look-up asks one after the other (a walk was 2.4 times slower at 100).
const MaxPacks = 30

// Consolidate puts all packs of a mirror into one. Nothing is inflated: deltas
// name their base by distance within one pack's part or by hash, and both stay
// true when the parts are written one after the other. Objects that are in two
// packs stay twice. The caller has locked the mirror.
func Consolidate(ctx context.Context, dir string) error {
	s, err := Open(dir, 0)
	if err != nil {
		return err
	}
	defer s.Close()
	packDir := filepath.Join(dir, "objects", "pack")
	file, err := os.CreateTemp(packDir, packPrefix)
	if err != nil {
		return err
	}
	out := &Spooled{incoming: &incoming{}, file: file}
	defer out.Discard()
	if err := out.join(ctx, s.Packs); err != nil {
		return err
	}
	if err := out.WriteIndex(dir); err != nil {
		return err
	}
	if err := out.Publish(dir); err != nil {
		return err
	}
	for _, p := range s.Packs {
		if p.name == out.sum.String() {
			continue
		}
		base := filepath.Join(packDir, "pack-"+p.name)
		// The index goes first: a pack without one is swept at the next start.
		if err := errors.Join(os.Remove(base+".idx"), os.Remove(base+".pack")); err != nil {
			return err
		}
	}
	return SyncDir(packDir)
}

// join writes the objects of packs, oldest first, as one pack.
func (s *Spooled) join(ctx context.Context, packs []*pack) error {
	const head, sum = 12, 20 // bytes before and after the objects of a pack
	if _, err := s.file.WriteString("PACK\x00\x00\x00\x02\x00\x00\x00\x00"); err != nil {
		return err
	}
	end := int64(head)
	for _, p := range slices.Backward(packs) {
		if err := ctx.Err(); err != nil {
			return err
		}
		iter, err := p.idx.Entries()
		if err != nil {
			return err
		}
		for e, err := iter.Next(); err != io.EOF; e, err = iter.Next() {
			if err != nil {
				return err
			}
			s.entries = append(s.entries, entry{id: e.Hash, crc: e.CRC32, offset: int64(e.Offset) + end - head})
		}
		n, err := io.Copy(s.file, io.NewSectionReader(p.file, head, p.size-head-sum))
		if err != nil {
			return err
		}
		end += n
	}
	return s.seal(end)
}

// seal writes the number of objects and the checksum of a pack whose last object ends at
// an offset.
func (s *Spooled) seal(end int64) error {
	if _, err := s.file.WriteAt(binary.BigEndian.AppendUint32(nil, uint32(len(s.entries))), 8); err != nil {
		return err
	}
	h := newSum()
	if _, err := io.Copy(h, io.NewSectionReader(s.file, 0, end)); err != nil {
		return err
	}
	h.Sum(s.sum[:0])
	s.size = end + int64(len(s.sum))
	_, err := s.file.WriteAt(s.sum[:], end)
	return err
}
