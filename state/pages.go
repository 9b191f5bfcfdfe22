package state

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// pages reads a bbolt file page by page without bbolt, which trusts every number that it finds: each offset, count and
// page number is checked here before it is used, so that no damage can fault, panic or loop. It serves the
// verification and the salvage of damaged files; nothing else reads pages.
//
// The layout is that of bbolt's file format version 2, in the byte order of the machine.
type pages struct {
	r    io.ReaderAt
	size int64 // of the file, bytes
	page int   // size of a page, bytes
	high uint64
}

const (
	pageHeader  = 16
	pageElement = 16
	branchPage  = 0x01
	leafPage    = 0x02
	freePage    = 0x10
	bucketFlag  = 0x01 // of a leaf element: the value is a bucket
	bucketHead  = 16   // root page and sequence, before the page of an inline bucket

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	metaLen     = 64 // of a meta page after its header, with the checksum
	noFreelist  = ^uint64(0)
	minPage     = 1 << 10
	maxPage     = 64 << 10
)

var native = binary.NativeEndian

// boltMeta is one of the two heads of a bbolt file.
type boltMeta struct {
	version  uint32
	page     int
	root     uint64
	freelist uint64
	high     uint64 // number of pages in use, free ones included
	txid     uint64
}

// readMeta reads the meta page at an offset. ok means that its checksum is right, whatever the version.
func readMeta(r io.ReaderAt, off int64) (m boltMeta, ok bool) {
	var buf [pageHeader + metaLen]byte
	if _, err := r.ReadAt(buf[:], off); err != nil {
		return boltMeta{}, false
	}
	b := buf[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaLen-8])
	if native.Uint32(b) != boltMagic || native.Uint64(b[metaLen-8:]) != sum.Sum64() {
		return boltMeta{}, false
	}
	return boltMeta{
		version:  native.Uint32(b[4:]),
		page:     int(native.Uint32(b[8:])),
		root:     native.Uint64(b[16:]),
		freelist: native.Uint64(b[32:]),
		high:     native.Uint64(b[40:]),
		txid:     native.Uint64(b[48:]),
	}, true
}

// readMetas returns the sound heads of a file, the newest first.
func readMetas(r io.ReaderAt) []boltMeta {
	var out []boltMeta
	first, ok := readMeta(r, 0)
	if ok && first.sane() {
		out = append(out, first)
	}
	// The second head is one page on; without the first the size of a page has to be tried.
	for size := int64(minPage); size <= maxPage; size *= 2 {
		m, ok := readMeta(r, size)
		if !ok || !m.sane() || int64(m.page) != size || len(out) > 0 && first.page != m.page {
			continue
		}
		if len(out) > 0 && m.txid > first.txid {
			return []boltMeta{m, first}
		}
		return append(out, m)
	}
	return out
}

// twins says whether the heads are those of two transactions in a row, as bbolt always leaves them. An older head in the
// place of the newest would hide the last transaction.
func twins(metas []boltMeta) bool {
	return len(metas) == 2 && metas[0].txid == metas[1].txid+1
}

func (m boltMeta) sane() bool {
	return m.page >= minPage && m.page <= maxPage && m.page&(m.page-1) == 0 && m.root < m.high && m.high < 1<<40
}

// pageOf is one parsed page, its bytes with those of its overflow pages.
type pageOf struct {
	id       uint64
	flags    uint16
	count    int
	overflow uint64
	data     []byte // from the header on
}

// element is one entry of a branch or leaf page.
type element struct {
	key    []byte
	value  []byte // of a leaf
	bucket bool   // value is a bucket
	child  uint64 // of a branch
}

// read reads page id with its overflow.
func (p *pages) read(id uint64) (pageOf, error) {
	if id < 2 || id >= p.high {
		return pageOf{}, fmt.Errorf("page %d: outside of the file", id)
	}
	buf := make([]byte, p.page)
	if _, err := p.r.ReadAt(buf, int64(id)*int64(p.page)); err != nil {
		return pageOf{}, fmt.Errorf("page %d: %w", id, err)
	}
	out, err := parsePage(buf)
	if err != nil {
		return pageOf{}, fmt.Errorf("page %d: %w", id, err)
	}
	if out.id != id {
		return pageOf{}, fmt.Errorf("page %d: says it is %d", id, out.id)
	}
	if out.overflow == 0 {
		return out, nil
	}
	if out.overflow >= p.high-id || int64(out.overflow)*int64(p.page) > maxBody+int64(p.page)*64 {
		return pageOf{}, fmt.Errorf("page %d: %d overflow pages", id, out.overflow)
	}
	buf = make([]byte, (int(out.overflow)+1)*p.page)
	if _, err := p.r.ReadAt(buf, int64(id)*int64(p.page)); err != nil {
		return pageOf{}, fmt.Errorf("page %d: %w", id, err)
	}
	out.data = buf
	return out, nil
}

func parsePage(buf []byte) (pageOf, error) {
	if len(buf) < pageHeader {
		return pageOf{}, shapeError("too short")
	}
	out := pageOf{
		id:       native.Uint64(buf),
		flags:    native.Uint16(buf[8:]),
		count:    int(native.Uint16(buf[10:])),
		overflow: uint64(native.Uint32(buf[12:])),
		data:     buf,
	}
	if out.flags != branchPage && out.flags != leafPage && out.flags != freePage {
		return pageOf{}, fmt.Errorf("unknown type %#x", out.flags)
	}
	return out, nil
}

// element returns entry i of a branch or leaf page.
func (p pageOf) element(i int) (element, error) {
	off := pageHeader + i*pageElement
	if off+pageElement > len(p.data) {
		return element{}, fmt.Errorf("page %d: entry %d outside of the page", p.id, i)
	}
	b := p.data[off:]
	var e element
	var pos, ksize, vsize uint64
	if p.flags == branchPage {
		pos, ksize, e.child = uint64(native.Uint32(b)), uint64(native.Uint32(b[4:])), native.Uint64(b[8:])
	} else {
		flags := native.Uint32(b)
		if flags > bucketFlag {
			return element{}, fmt.Errorf("page %d: entry %d has flags %#x", p.id, i, flags)
		}
		e.bucket = flags == bucketFlag
		pos, ksize, vsize = uint64(native.Uint32(b[4:])), uint64(native.Uint32(b[8:])), uint64(native.Uint32(b[12:]))
	}
	from := uint64(off) + pos
	least := uint64(pageHeader + p.count*pageElement)
	if from < least || from+ksize+vsize > uint64(len(p.data)) {
		return element{}, fmt.Errorf("page %d: entry %d outside of the page", p.id, i)
	}
	if ksize == 0 {
		return element{}, fmt.Errorf("page %d: entry %d without a key", p.id, i)
	}
	e.key = p.data[from : from+ksize]
	e.value = p.data[from+ksize : from+ksize+vsize]
	return e, nil
}

// bucketRoot reads the value of a bucket entry: the root page, or the page inside it when the bucket is inline.
func (e element) bucketRoot() (root uint64, inline *pageOf, err error) {
	if len(e.value) < bucketHead {
		return 0, nil, fmt.Errorf("bucket %q: too short", e.key)
	}
	if root = native.Uint64(e.value); root != 0 {
		return root, nil, nil
	}
	page, err := parsePage(e.value[bucketHead:])
	if err == nil && page.flags != leafPage {
		err = shapeError("not a leaf")
	}
	if err != nil {
		return 0, nil, fmt.Errorf("bucket %q: %w", e.key, err)
	}
	return 0, &page, nil
}

// freeIDs reads the list of free pages.
func (p *pages) freeIDs(id uint64) (ids []uint64, list pageOf, err error) {
	list, err = p.read(id)
	if err == nil && list.flags != freePage {
		err = fmt.Errorf("page %d: not a free list", id)
	}
	if err != nil {
		return nil, pageOf{}, err
	}
	body := list.data[pageHeader:]
	n := uint64(list.count)
	if n == 0xFFFF && len(body) >= 8 {
		n, body = native.Uint64(body), body[8:]
	}
	if n > uint64(len(body)/8) {
		return nil, pageOf{}, fmt.Errorf("page %d: free list of %d pages", id, n)
	}
	ids = make([]uint64, n)
	for i := range ids {
		ids[i] = native.Uint64(body[i*8:])
	}
	return ids, list, nil
}
