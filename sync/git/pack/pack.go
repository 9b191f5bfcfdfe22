package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// pack is a pack of a mirror with its index, both open. It is read by offset
// only and safe for concurrent use. The index is held in memory once it is
// asked, unless it is large; a mirror that is not read is closed soon, so that a
// hundred of them cost neither memory nor open files.
type pack struct {
	name   string // 40 hex digits, as in pack-<name>.pack
	idx    *os.File
	data   *os.File
	fanout [256]uint32
	count  int64
	size   int64

	load  sync.Once
	table []byte // names, checksums and offsets of the index; nil when not held
}

// largestTable is the largest part of an index that is held. Unit: bytes; an
// object takes 28.
const largestTable = 8 << 20

// openPack opens pack-<name> in dir and checks that pack and index belong
// together. Its errors wrap ErrDamaged unless the file system itself fails.
func openPack(dir, name string) (p *pack, err error) {
	p = &pack{name: name}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	base := filepath.Join(dir, "pack-"+name)
	if p.idx, err = os.Open(base + ".idx"); err != nil {
		return p, err
	}
	if p.data, err = os.Open(base + ".pack"); err != nil {
		return p, err
	}
	return p, p.check()
}

func (p *pack) check() error {
	wrong := func(what string) error { return fmt.Errorf("%w: pack %.8s: %s", ErrDamaged, p.name, what) }
	var head [idxNames]byte
	if _, err := p.idx.ReadAt(head[:], 0); err != nil {
		return wrong("its index is cut off")
	}
	if string(head[:idxFanout]) != idxMagic {
		return wrong("its index has another form")
	}
	last := uint32(0)
	for i := range p.fanout {
		p.fanout[i] = binary.BigEndian.Uint32(head[idxFanout+4*int64(i):])
		if p.fanout[i] < last {
			return wrong("the counts of its index go back")
		}
		last = p.fanout[i]
	}
	p.count = int64(last)
	info, err := p.idx.Stat()
	if err != nil {
		return err
	}
	least := idxNames + 28*p.count + idxTrailer
	if extra := info.Size() - least; extra < 0 || extra%8 != 0 || extra > 8*p.count {
		return wrong("its index has another length than its counts say")
	}
	var sums [2][20]byte
	if _, err := p.idx.ReadAt(sums[0][:], info.Size()-idxTrailer); err != nil {
		return err
	}
	if info, err = p.data.Stat(); err != nil {
		return err
	}
	p.size = info.Size()
	var begin [12]byte
	if p.size < 32 {
		return wrong("it is cut off")
	}
	if _, err := p.data.ReadAt(begin[:], 0); err != nil {
		return err
	}
	if _, err := p.data.ReadAt(sums[1][:], p.size-20); err != nil {
		return err
	}
	if string(begin[:4]) != "PACK" || int64(binary.BigEndian.Uint32(begin[8:])) != p.count || sums[0] != sums[1] {
		return wrong("pack and index do not belong together")
	}
	return nil
}

func (p *pack) close() {
	if p.idx != nil {
		p.idx.Close()
	}
	if p.data != nil {
		p.data.Close()
	}
}

// at reads from the tables of the index, which begin with the names.
func (p *pack) at(buf []byte, offset int64) error {
	p.load.Do(func() {
		if 28*p.count > largestTable {
			return
		}
		table := make([]byte, 28*p.count)
		if _, err := p.idx.ReadAt(table, idxNames); err == nil {
			p.table = table
		}
	})
	if end := offset + int64(len(buf)); end <= int64(len(p.table)) {
		copy(buf, p.table[offset:end])
		return nil
	}
	_, err := p.idx.ReadAt(buf, idxNames+offset)
	return err
}

// find returns the offset of an object, or -1 when it is not in the pack.
func (p *pack) find(id ID) (int64, error) {
	lo, hi := int64(0), int64(p.fanout[id[0]])
	if id[0] > 0 {
		lo = int64(p.fanout[id[0]-1])
	}
	var name ID
	for lo < hi {
		mid := lo + (hi-lo)/2
		if err := p.at(name[:], 20*mid); err != nil {
			return -1, err
		}
		switch c := bytes.Compare(id[:], name[:]); {
		case c < 0:
			hi = mid
		case c > 0:
			lo = mid + 1
		default:
			return p.offset(mid)
		}
	}
	return -1, nil
}

// offset returns the place of the i-th object of the index.
func (p *pack) offset(i int64) (int64, error) {
	var b [8]byte
	if err := p.at(b[:4], 24*p.count+4*i); err != nil {
		return -1, err
	}
	at := int64(binary.BigEndian.Uint32(b[:4]))
	if at&(1<<31) != 0 {
		if err := p.at(b[:], 28*p.count+8*(at&^(1<<31))); err != nil {
			return -1, err
		}
		at = int64(binary.BigEndian.Uint64(b[:]))
	}
	if at < 12 || at >= p.size-20 {
		return -1, fmt.Errorf("%w: pack %.8s: an offset lies outside", ErrDamaged, p.name)
	}
	return at, nil
}

// packed is where and how an object lies in a pack.
type packed struct {
	kind Kind  // as stored
	size int64 // of the zlib stream's content
	at   int64 // where that stream begins
	base int64 // offset of the base of an ofs-delta
	name ID
}

// header reads the header of the object at an offset.
func (p *pack) header(offset int64) (packed, error) {
	var buf [48]byte
	n, err := p.data.ReadAt(buf[:min(int64(len(buf)), p.size-20-offset)], offset)
	if err != nil && err != io.EOF {
		return packed{}, err
	}
	wrong := func() (packed, error) {
		return packed{}, fmt.Errorf("%w: pack %.8s: no object at %d", ErrDamaged, p.name, offset)
	}
	r := bytes.NewReader(buf[:n])
	h, back, err := readHeader(r)
	if err != nil {
		return wrong()
	}
	h.at = offset + int64(n-r.Len())
	if h.kind == OfsDeltaKind {
		if h.base = offset - back; h.base < 12 {
			return wrong()
		}
	}
	return h, nil
}

var errHeader = errors.New("malformed object header")

// readHeader reads the header of an object in a pack: type, size, and for
// deltas the distance back to the base or its name.
func readHeader(r io.ByteReader) (h packed, back int64, err error) {
	b, err := r.ReadByte()
	if err != nil {
		return h, 0, err
	}
	h.kind, h.size = Kind(b>>4&7), int64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if shift > 53 { // far beyond any limit, and no overflow
			return h, 0, errHeader
		}
		if b, err = r.ReadByte(); err != nil {
			return h, 0, err
		}
		h.size |= int64(b&0x7f) << shift
	}
	switch h.kind {
	case CommitKind, TreeKind, BlobKind, TagKind:
	case OfsDeltaKind:
		if b, err = r.ReadByte(); err != nil {
			return h, 0, err
		}
		back = int64(b & 0x7f)
		for b&0x80 != 0 {
			if back > 1<<47 {
				return h, 0, errHeader
			}
			if b, err = r.ReadByte(); err != nil {
				return h, 0, err
			}
			back = (back+1)<<7 | int64(b&0x7f)
		}
		if back == 0 {
			return h, 0, errHeader
		}
	case RefDeltaKind:
		for i := range h.name {
			if h.name[i], err = r.ReadByte(); err != nil {
				return h, 0, err
			}
		}
	default:
		return h, 0, errHeader
	}
	return h, back, nil
}

// packNames lists the packs of a directory that have an index.
func packNames(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(f.Name(), ".idx"), "pack-"); ok && strings.HasSuffix(f.Name(), ".idx") && len(name) == 40 {
			names = append(names, name)
		}
	}
	return names, nil
}
