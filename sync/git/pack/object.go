// Package pack reads and writes what a bare repository keeps on disk: packs with their indexes, the objects in
// them, and packed-refs. A pack from a server is not trusted: it is examined object by object, within limits,
// while it is spooled, and every object is checked against its name again when it is read.
package pack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/klauspost/compress/zlib"
)

// ID is the name of an object. Only SHA-1 repositories are supported.
type ID = plumbing.Hash

// Kind is the type of an object, with the numbers of the pack format.
type Kind = plumbing.ObjectType

const (
	CommitKind   = plumbing.CommitObject
	TreeKind     = plumbing.TreeObject
	BlobKind     = plumbing.BlobObject
	TagKind      = plumbing.TagObject
	OfsDeltaKind = plumbing.OFSDeltaObject
	RefDeltaKind = plumbing.REFDeltaObject
)

// Object is an object with its content.
type Object struct {
	ID   ID
	Kind Kind
	Data []byte
}

var (
	// ErrBadPack is wrapped when what the server sent is not a sound pack.
	ErrBadPack = errors.New("damaged pack")
	// ErrDamaged is wrapped when the mirror on disk is not sound.
	ErrDamaged = errors.New("damaged mirror")
	// ErrIncomplete is wrapped when the server's pack does not connect to the mirror.
	ErrIncomplete = errors.New("objects are missing from what was sent")
	// ErrMissing is wrapped when an object is not in the mirror.
	ErrMissing = errors.New("object is not in the mirror")
)

// ParseID reads 40 hex digits in lower or upper case.
func ParseID(s string) (ID, bool) {
	if len(s) != 40 || !plumbing.IsHash(s) {
		return ID{}, false
	}
	return plumbing.NewHash(s), true
}

// IDOf is the name of an object with this content. The hash notices the known SHA-1
// collision attacks, as git does, and then gives another name.
func IDOf(k Kind, data []byte) ID { return plumbing.ComputeHash(k, data) }

// objectReader reads one object of a pack after the other.
type objectReader struct {
	buf *bufio.Reader
	z   io.ReadCloser // nil before the first object
}

// objectReaders are shared: one has 40 KiB, and an agent may have a thousand packs open.
var objectReaders = sync.Pool{New: func() any { return &objectReader{buf: bufio.NewReader(nil)} }}

// header reads what is before the content of the object at an offset.
func (r *objectReader) header(file io.ReaderAt, offset int64) (h packfile.ObjectHeader, err error) {
	r.buf.Reset(io.NewSectionReader(file, offset, math.MaxInt64-offset))
	c, err := r.buf.ReadByte()
	h = packfile.ObjectHeader{Offset: offset, Type: Kind(c >> 4 & 7), Length: int64(c & 15)}
	for shift := 4; c&0x80 != 0 && err == nil; shift += 7 {
		if shift > 57 {
			return h, errHeader
		}
		c, err = r.buf.ReadByte()
		h.Length |= int64(c&0x7f) << shift
	}
	switch {
	case err != nil:
	case h.Type == RefDeltaKind:
		_, err = io.ReadFull(r.buf, h.Reference[:])
	case h.Type == OfsDeltaKind:
		back := int64(-1)
		for c = 0x80; c&0x80 != 0 && err == nil && back <= offset; {
			c, err = r.buf.ReadByte()
			back = (back+1)<<7 | int64(c&0x7f)
		}
		if h.OffsetReference = offset - back; err == nil && (back <= 0 || back > offset) {
			err = errHeader
		}
	}
	return h, err
}

// open begins the content of the object whose header was read.
func (r *objectReader) open() (err error) {
	if r.z != nil {
		return r.z.(zlib.Resetter).Reset(r.buf, nil)
	}
	r.z, err = zlib.NewReader(r.buf)
	return err
}

// inflate reads the content of the object whose header was read last. The caller has held the size in it against a limit.
func (r *objectReader) inflate(h packfile.ObjectHeader) ([]byte, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	out := make([]byte, h.Length)
	_, err := io.ReadFull(r.z, out)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, errShort
	}
	if err == nil {
		_, err = io.ReadFull(r.z, make([]byte, 1)) // also reads the checksum
	}
	switch err {
	case io.EOF:
		return out, nil
	case nil:
		return nil, packfile.ErrInflatedSizeMismatch
	}
	return nil, err
}

// inflate is objectReader.inflate for a pack that comes in a stream.
func inflate(s *packfile.Scanner, h *packfile.ObjectHeader) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, h.Length))
	if _, _, err := s.NextObject(out); err != nil {
		return nil, err
	}
	if int64(out.Len()) != h.Length {
		return nil, errShort
	}
	return out.Bytes(), nil
}

var (
	errShort  = errors.New("object is shorter than its header says")
	errDelta  = errors.New("malformed delta")
	errHeader = errors.New("malformed header of an object")
)

// deltaHead is how many bytes of a delta hold both of its sizes.
const deltaHead = 20

// deltaSize is the size of the object that a delta makes, from the head of the delta.
func deltaSize(delta []byte) (int64, error) {
	_, n := binary.Uvarint(delta)
	size, m := binary.Uvarint(delta[max(n, 0):])
	if n <= 0 || m <= 0 || size > math.MaxInt64 {
		return 0, errDelta
	}
	return int64(size), nil
}
