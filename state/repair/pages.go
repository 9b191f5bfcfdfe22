package repair

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"limpet/state/frame"
)

// Pages reads a bbolt file page by page without bbolt, which trusts every number that it finds:
// each offset, count and page number is checked here before it is used, so that no damage can
// fault, panic or loop. It serves the verification and the salvage of damaged files; nothing else
// reads pages.
//
// The layout is that of bbolt's file format version 2, in the byte order of the machine.
type Pages struct {
	R    io.ReaderAt
	Size int64 // of the file, bytes
	Page int   // size of a page, bytes
	High uint64
}

const (
	PageHeader  = 16
	PageElement = 16
	BranchPage  = 0x01
	LeafPage    = 0x02
	freePage    = 0x10
	bucketFlag  = 0x01 // of a leaf element: the value is a bucket
	bucketHead  = 16   // root page and sequence, before the page of an inline bucket

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	MetaLen     = 64 // of a meta page after its header, with the checksum
	NoFreelist  = ^uint64(0)
	minPage     = 1 << 10
	maxPage     = 64 << 10
)

var Native = binary.NativeEndian

// Head is one of the two heads of a bbolt file.
type Head struct {
	version  uint32
	Page     int
	Root     uint64
	Freelist uint64
	High     uint64 // number of pages in use, free ones included
	Txid     uint64
	slot     uint64 // page that it is in: 0 or 1
}

// readMeta reads the meta page at an offset. ok means that its checksum is right, whatever the
// version.
func readMeta(r io.ReaderAt, off int64) (m Head, ok bool) {
	var buf [PageHeader + MetaLen]byte
	if _, err := r.ReadAt(buf[:], off); err != nil {
		return Head{}, false
	}
	b := buf[PageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:MetaLen-8])
	if Native.Uint32(b) != boltMagic || Native.Uint64(b[MetaLen-8:]) != sum.Sum64() {
		return Head{}, false
	}
	return Head{
		version:  Native.Uint32(b[4:]),
		Page:     int(Native.Uint32(b[8:])),
		Root:     Native.Uint64(b[16:]),
		Freelist: Native.Uint64(b[32:]),
		High:     Native.Uint64(b[40:]),
		Txid:     Native.Uint64(b[48:]),
		slot:     uint64(min(off, 1)),
	}, true
}

// ReadHeads returns the sound heads of a file, the newest first.
func ReadHeads(r io.ReaderAt) []Head {
	var out []Head
	first, ok := readMeta(r, 0)
	if ok && first.sane() {
		out = append(out, first)
	}
	// The second head is one page on; without the first the size of a page has to be tried.
	for size := int64(minPage); size <= maxPage; size *= 2 {
		m, ok := readMeta(r, size)
		if !ok || !m.sane() || int64(m.Page) != size || len(out) > 0 && first.Page != m.Page {
			continue
		}
		if len(out) > 0 && m.Txid > first.Txid {
			return []Head{m, first}
		}
		return append(out, m)
	}
	return out
}

// twins reports whether the heads are those of two transactions in a row, as bbolt always leaves
// them. An older head in the place of the newest would hide the last transaction.
func twins(metas []Head) bool {
	return len(metas) == 2 && metas[0].Txid == metas[1].Txid+1
}

// Misplaced reports whether the newest head is in the slot of the other parity, as bbolt's own
// copies have it at odd transactions. The next commit overwrites it there, and what is left looks
// like damage.
func Misplaced(r io.ReaderAt) bool {
	heads := ReadHeads(r)
	return len(heads) > 0 && heads[0].Txid%2 != heads[0].slot
}

// PlaceHeads returns the first two pages of a copy, with the newer head in the slot of its parity.
func PlaceHeads(newer, older []byte) []byte {
	heads := slices.Concat(newer, older)
	if Misplaced(bytes.NewReader(heads)) {
		heads = slices.Concat(older, newer)
		Native.PutUint64(heads, 0)
		Native.PutUint64(heads[len(older):], 1)
	}
	return heads
}

func (m Head) sane() bool {
	return m.Page >= minPage && m.Page <= maxPage && m.Page&(m.Page-1) == 0 && m.Root < m.High && m.High < 1<<40
}

// pageOf is one parsed page, its bytes with those of its overflow pages.
type pageOf struct {
	Id       uint64
	Flags    uint16
	count    int
	overflow uint64
	Data     []byte // from the header on
}

// element is one entry of a branch or leaf page.
type element struct {
	key    []byte
	value  []byte // of a leaf
	bucket bool   // value is a bucket
	child  uint64 // of a branch
}

// Read reads page id with its overflow.
func (p *Pages) Read(id uint64) (pageOf, error) {
	if id < 2 || id >= p.High {
		return pageOf{}, fmt.Errorf("page %d: outside of the file", id)
	}
	buf := make([]byte, p.Page)
	if _, err := p.R.ReadAt(buf, int64(id)*int64(p.Page)); err != nil {
		return pageOf{}, fmt.Errorf("page %d: %w", id, err)
	}
	out, err := ParsePage(buf)
	if err != nil {
		return pageOf{}, fmt.Errorf("page %d: %w", id, err)
	}
	if out.Id != id {
		return pageOf{}, fmt.Errorf("page %d: says it is %d", id, out.Id)
	}
	if out.overflow == 0 {
		return out, nil
	}
	if out.overflow >= p.High-id || int64(out.overflow)*int64(p.Page) > frame.MaxBody+int64(p.Page)*64 {
		return pageOf{}, fmt.Errorf("page %d: %d overflow pages", id, out.overflow)
	}
	buf = make([]byte, (int(out.overflow)+1)*p.Page)
	if _, err := p.R.ReadAt(buf, int64(id)*int64(p.Page)); err != nil {
		return pageOf{}, fmt.Errorf("page %d: %w", id, err)
	}
	out.Data = buf
	return out, nil
}

func ParsePage(buf []byte) (pageOf, error) {
	if len(buf) < PageHeader {
		return pageOf{}, frame.ShapeError("too short")
	}
	out := pageOf{
		Id:       Native.Uint64(buf),
		Flags:    Native.Uint16(buf[8:]),
		count:    int(Native.Uint16(buf[10:])),
		overflow: uint64(Native.Uint32(buf[12:])),
		Data:     buf,
	}
	if out.Flags != BranchPage && out.Flags != LeafPage && out.Flags != freePage {
		return pageOf{}, fmt.Errorf("unknown type %#x", out.Flags)
	}
	return out, nil
}

// element returns entry i of a branch or leaf page.
func (p pageOf) element(i int) (element, error) {
	off := PageHeader + i*PageElement
	if off+PageElement > len(p.Data) {
		return element{}, fmt.Errorf("page %d: entry %d outside of the page", p.Id, i)
	}
	b := p.Data[off:]
	var e element
	var pos, ksize, vsize uint64
	if p.Flags == BranchPage {
		pos = uint64(Native.Uint32(b))
		ksize = uint64(Native.Uint32(b[4:]))
		e.child = Native.Uint64(b[8:])
	} else {
		flags := Native.Uint32(b)
		if flags > bucketFlag {
			return element{}, fmt.Errorf("page %d: entry %d has flags %#x", p.Id, i, flags)
		}
		e.bucket = flags == bucketFlag
		pos = uint64(Native.Uint32(b[4:]))
		ksize = uint64(Native.Uint32(b[8:]))
		vsize = uint64(Native.Uint32(b[12:]))
	}
	from := uint64(off) + pos
	least := uint64(PageHeader + p.count*PageElement)
	if from < least || from+ksize+vsize > uint64(len(p.Data)) {
		return element{}, fmt.Errorf("page %d: entry %d outside of the page", p.Id, i)
	}
	if ksize == 0 {
		return element{}, fmt.Errorf("page %d: entry %d without a key", p.Id, i)
	}
	e.key = p.Data[from : from+ksize]
	e.value = p.Data[from+ksize : from+ksize+vsize]
	return e, nil
}

// bucketRoot reads the value of a bucket entry: the root page, or the page inside it when the
// bucket is inline.
func (e element) bucketRoot() (root uint64, inline *pageOf, err error) {
	if len(e.value) < bucketHead {
		return 0, nil, fmt.Errorf("bucket %q: too short", e.key)
	}
	if root = Native.Uint64(e.value); root != 0 {
		return root, nil, nil
	}
	page, err := ParsePage(e.value[bucketHead:])
	if err == nil && page.Flags != LeafPage {
		err = frame.ShapeError("not a leaf")
	}
	if err != nil {
		return 0, nil, fmt.Errorf("bucket %q: %w", e.key, err)
	}
	return 0, &page, nil
}

func (p *Pages) freeIDs(id uint64) (ids []uint64, list pageOf, err error) {
	list, err = p.Read(id)
	if err == nil && list.Flags != freePage {
		err = fmt.Errorf("page %d: not a free list", id)
	}
	if err != nil {
		return nil, pageOf{}, err
	}
	body := list.Data[PageHeader:]
	n := uint64(list.count)
	if n == 0xFFFF && len(body) >= 8 {
		n, body = Native.Uint64(body), body[8:]
	}
	if n > uint64(len(body)/8) {
		return nil, pageOf{}, fmt.Errorf("page %d: free list of %d pages", id, n)
	}
	ids = make([]uint64, n)
	for i := range ids {
		ids[i] = Native.Uint64(body[i*8:])
	}
	return ids, list, nil
}
