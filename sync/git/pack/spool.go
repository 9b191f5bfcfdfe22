package pack

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"limpet/state/atomicfile"
	"limpet/sync/git/transfer"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/hash"
	"github.com/klauspost/compress/zlib"
)

// Spooled is a pack in a temporary file of the mirror.
type Spooled struct {
	in   *incoming
	file *os.File
	idx  string // temporary index, "" before it was written
}

// Discard removes what was not installed.
func (s *Spooled) Discard() {
	s.file.Close()
	os.Remove(s.file.Name())
	if s.idx != "" {
		os.Remove(s.idx)
	}
}

// Spool reads a pack into a temporary file, counts its objects in m and hands files to a, which may
// be nil. The result is to be discarded, also when there is an error.
func Spool(dir string, pack io.Reader, l Limits, m *transfer.Meter, a *Arrivals) (*Spooled, error) {
	file, err := os.CreateTemp(filepath.Join(dir, "objects", "pack"), packPrefix)
	if err != nil {
		return nil, err
	}
	s := &Spooled{file: file}
	if s.in, err = readPack(pack, file, l, m, a); err == nil {
		err = file.Truncate(s.in.size)
	}
	return s, err
}

// Stock counts the objects, the bytes of the pack and those of all objects inflated, with what
// Resolve has added.
func (s *Spooled) Stock() (objects int, bytes, inflated int64) {
	return len(s.in.entries), s.in.size, s.in.made
}

// Objects lists the objects of the pack, whose kinds are known once it was resolved.
func (s *Spooled) Objects() iter.Seq2[ID, Kind] {
	return func(yield func(ID, Kind) bool) {
		for i := range s.in.entries {
			if !yield(s.in.entries[i].id, s.in.entries[i].kind) {
				return
			}
		}
	}
}

// complete adds to a thin pack the objects of old that it builds on, so that it can be read by
// itself. It reads them one by one: all together may be as large as the mirror.
func (s *Spooled) complete(old *Store, thin []ID, limit int64) error {
	if len(thin) == 0 {
		return nil
	}
	end := s.in.size - int64(len(s.in.sum))
	for _, id := range thin {
		k, data, err := old.Read(id, limit)
		if err != nil {
			return err
		}
		to := io.NewOffsetWriter(s.file, end)
		whole := Object{id, k, data}.Pack().data
		e := entry{id: id, kind: k, base: -1, offset: end, size: int64(len(data)), result: int64(len(data)), crc: crc32.ChecksumIEEE(whole)}
		if _, err := to.Write(whole); err != nil {
			return err
		}
		s.in.entries = append(s.in.entries, e)
		n, _ := to.Seek(0, io.SeekCurrent)
		end += n
	}
	return s.seal(end)
}

// Packed is an object in the form of an entry of a pack, which is compressed.
type Packed struct {
	ID   ID
	Kind Kind
	Size int64 // of its content
	data []byte
}

// Pack compresses the object.
func (b Object) Pack() Packed {
	return Packed{b.ID, b.Kind, int64(len(b.Data)), compress(b.Kind, nil, b.Data)}
}

// Delta compresses the object as its difference to another one, which its reader has, where that is
// much smaller.
func (b Object) Delta(base Object) Packed {
	if delta := packfile.DiffDelta(base.Data, b.Data); len(delta) < len(b.Data)/2 {
		return Packed{b.ID, b.Kind, int64(len(b.Data)), compress(RefDeltaKind, base.ID[:], delta)}
	}
	return b.Pack()
}

// deflaters are shared: to make one takes longer than to compress a tree.
var deflaters = sync.Pool{New: func() any { return zlib.NewWriter(io.Discard) }}

// compress returns an entry of a pack. base is the name of the object that a delta builds on.
func compress(kind Kind, base, content []byte) []byte {
	size := len(content)
	head := []byte{byte(kind)<<4 | byte(size&15)}
	for left := size >> 4; left > 0; left >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(left&0x7f))
	}
	out := bytes.NewBuffer(append(head, base...))
	z := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(z)
	z.Reset(out) // memory takes it all
	z.Write(content)
	z.Close()
	return bytes.Clone(out.Bytes())
}

// Unpack returns the content of the object.
func (p Packed) Unpack() ([]byte, error) {
	head := 1
	for p.data[head-1]&0x80 != 0 {
		head++
	}
	z, err := zlib.NewReader(bytes.NewReader(p.data[head:]))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// WriteIndex writes the index to a temporary file. It sorts the entries.
func (s *Spooled) WriteIndex(dir string) error {
	f, err := os.CreateTemp(filepath.Join(dir, "objects", "pack"), packPrefix)
	if err != nil {
		return err
	}
	s.idx = f.Name()
	err = writeIndex(f, s.in.entries, s.in.sum)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Layout of a version 2 pack index: magic and version, 256 running counts by
// first byte, names, checksums, 31-bit offsets, 63-bit offsets, two trailers.
const idxMagic = "\xfftOc\x00\x00\x00\x02"

// writeIndex writes the index of a pack whose trailer is sum. It sorts entries.
// Objects that are in the pack twice are listed twice, as git does.
func writeIndex(w io.Writer, entries []entry, sum ID) error {
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(a.id[:], b.id[:]) })
	h := newSum()
	out := bufio.NewWriterSize(io.MultiWriter(w, h), 64<<10)
	put := func(v uint32) { out.Write(binary.BigEndian.AppendUint32(out.AvailableBuffer(), v)) }
	out.WriteString(idxMagic)
	at := 0
	for first := range 256 {
		for at < len(entries) && int(entries[at].id[0]) <= first {
			at++
		}
		put(uint32(at))
	}
	for i := range entries {
		out.Write(entries[i].id[:])
	}
	for i := range entries {
		put(entries[i].crc)
	}
	var large []byte
	for i := range entries {
		if at := entries[i].offset; at > math.MaxInt32 {
			put(1<<31 | uint32(len(large)/8))
			large = binary.BigEndian.AppendUint64(large, uint64(at))
		} else {
			put(uint32(at))
		}
	}
	out.Write(large)
	out.Write(sum[:])
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(h.Sum(nil))
	return err
}

// Publish makes the pack durable and gives pack and index their names.
func (s *Spooled) Publish(dir string) error {
	if err := s.file.Sync(); err != nil {
		return err
	}
	packDir := filepath.Join(dir, "objects", "pack")
	base := filepath.Join(packDir, "pack-"+s.in.sum.String())
	if err := os.Chmod(s.file.Name(), 0o400); err != nil {
		return err
	}
	if err := os.Rename(s.file.Name(), base+".pack"); err != nil {
		return err
	}
	if err := os.Rename(s.idx, base+".idx"); err != nil {
		return err
	}
	return atomicfile.SyncDir(packDir)
}

// Over is a store of the spooled pack, whose index is written, on top of what was there;
// old is nil for nothing. It needs no Close.
func (s *Spooled) Over(old *Store, limit int64) (*Store, error) {
	p := newPack(s.in.sum.String())
	p.file = s.file
	if err := p.load(s.idx); err != nil {
		return nil, err
	}
	both := &Store{Packs: []*pack{p}, Limit: limit}
	if old != nil {
		both.Packs = append(both.Packs, old.Packs...)
	}
	return both, nil
}

// newSum is the hash of the checksum of a pack.
func newSum() hash.Hash { return hash.New(crypto.SHA1) }

// Encode is a pack of whole objects.
func Encode(made []Packed) []byte {
	var out bytes.Buffer // memory takes it all
	_ = EncodeTo(&out, len(made), func(yield func(Packed, error) bool) {
		for i := 0; i < len(made) && yield(made[i], nil); i++ {
		}
	})
	return out.Bytes()
}

// EncodeTo writes a pack of n objects, one at a time.
func EncodeTo(to io.Writer, n int, objects iter.Seq2[Packed, error]) error {
	h := newSum()
	w := io.MultiWriter(to, h)
	_, err := w.Write(binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(n)))
	for o, oerr := range objects {
		if err = cmp.Or(err, oerr); err == nil {
			_, err = w.Write(o.data)
		}
		if err != nil {
			return err
		}
	}
	_, err = to.Write(h.Sum(nil))
	return err
}

// MaxPacks is how many packs a mirror gathers before they are put together:
// every look-up asks one after the other (a walk was 2.4 times slower at 100).
const MaxPacks = 30

// Consolidate puts all packs of a mirror into one, without the largest where that has most of the
// bytes: to write it again would cost more than to look into it. Nothing is inflated: deltas name their base by
// distance within one pack's part or by hash. Objects that are in two packs stay twice, and of a
// name the first is meant (see pack.offset), whose base is in the same part or in one before:
// deltas that build on each other across parts make no circle. The caller has locked the mirror.
func Consolidate(ctx context.Context, dir string) error {
	s, err := Open(dir, 0, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	packs := slices.DeleteFunc(slices.Clone(s.Packs), func(p *pack) bool { return p.size > s.Bytes()/2 })
	packDir := filepath.Join(dir, "objects", "pack")
	file, err := os.CreateTemp(packDir, packPrefix)
	if err != nil {
		return err
	}
	out := &Spooled{in: &incoming{}, file: file}
	defer out.Discard()
	if err := out.join(ctx, packs); err != nil {
		return err
	}
	if err := out.WriteIndex(dir); err != nil {
		return err
	}
	if err := out.Publish(dir); err != nil {
		return err
	}
	for _, p := range packs {
		if p.name == out.in.sum.String() {
			continue
		}
		base := filepath.Join(packDir, "pack-"+p.name)
		// The index goes first: a pack without one is swept at the next start.
		if err := errors.Join(os.Remove(base+".idx"), os.Remove(base+".pack")); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(packDir)
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
			s.in.entries = append(s.in.entries, entry{id: e.Hash, crc: e.CRC32, offset: int64(e.Offset) + end - head})
		}
		file, err := files.open(p)
		if err != nil {
			return err
		}
		n, err := io.Copy(s.file, io.NewSectionReader(file, head, p.size-head-sum))
		files.done(p)
		if err != nil {
			return err
		}
		end += n
	}
	return s.seal(end)
}

// seal writes the number of objects and the checksum of a pack whose last object ends at an offset.
func (s *Spooled) seal(end int64) error {
	if _, err := s.file.WriteAt(binary.BigEndian.AppendUint32(nil, uint32(len(s.in.entries))), 8); err != nil {
		return err
	}
	h := newSum()
	if _, err := io.Copy(h, io.NewSectionReader(s.file, 0, end)); err != nil {
		return err
	}
	h.Sum(s.in.sum[:0])
	s.in.size = end + int64(len(s.in.sum))
	_, err := s.file.WriteAt(s.in.sum[:], end)
	return err
}
