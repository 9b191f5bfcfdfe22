// Package pack reads and writes what a bare repository keeps on disk: packs with their
// indexes, the objects in them, and packed-refs.
//
// A pack from a server is not trusted. It is examined object by object, within limits,
// while it is spooled to a file; object names are computed here, and every object is
// checked against its name again when it is read.
package pack

import (
	"bufio"
	"compress/zlib"
	"crypto"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/hash"
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

// idHasher computes object names one after the other. It notices the known
// SHA-1 collision attacks, as git does, and then gives another name.
type idHasher struct{ h hash.Hash }

func newIDHasher() *idHasher { return &idHasher{hash.New(crypto.SHA1)} }

func (i *idHasher) begin(k Kind, size int64) {
	i.h.Reset()
	i.h.Write(k.Bytes())
	var head [24]byte
	b := append(head[:0], ' ')
	b = strconv.AppendInt(b, size, 10)
	i.h.Write(append(b, 0))
}

func (i *idHasher) Write(p []byte) (int, error) { return i.h.Write(p) }

func (i *idHasher) id() (id ID) {
	i.h.Sum(id[:0])
	return id
}

func (i *idHasher) of(k Kind, data []byte) ID {
	i.begin(k, int64(len(data)))
	i.h.Write(data)
	return i.id()
}

var hashers = sync.Pool{New: func() any { return newIDHasher() }}

// IDOf is the name of an object with this content.
func IDOf(k Kind, data []byte) ID {
	h := hashers.Get().(*idHasher)
	defer hashers.Put(h)
	return h.of(k, data)
}

var inflaters sync.Pool

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// inflateAt is inflate for a stream that begins at an offset of a file.
func inflateAt(f io.ReaderAt, at, size int64) ([]byte, error) {
	r := readers.Get().(*bufio.Reader)
	defer readers.Put(r)
	r.Reset(io.NewSectionReader(f, at, math.MaxInt64-at))
	return inflate(r, size)
}

// inflate reads a whole zlib stream of exactly size bytes from r. With an r
// that is an io.ByteReader not a byte beyond the stream is consumed.
func inflate(r io.Reader, size int64) ([]byte, error) {
	data := make([]byte, size)
	err := withInflater(r, func(z io.Reader) error {
		if _, err := io.ReadFull(z, data); err != nil {
			return fmt.Errorf("object ends early: %w", err)
		}
		return atEnd(z)
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// inflateHead is the first size bytes of the stream at an offset.
func inflateHead(f io.ReaderAt, at, size int64) ([]byte, error) {
	r := readers.Get().(*bufio.Reader)
	defer readers.Put(r)
	r.Reset(io.NewSectionReader(f, at, math.MaxInt64-at))
	head := make([]byte, size)
	return head, withInflater(r, func(z io.Reader) error {
		_, err := io.ReadFull(z, head)
		return err
	})
}

// atEnd expects the end of the stream; reading it also checks the checksum.
func atEnd(z io.Reader) error {
	var one [1]byte
	for {
		n, err := z.Read(one[:])
		switch {
		case n > 0:
			return errors.New("object is longer than its header says")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// withInflater lends f a pooled zlib reader over r.
func withInflater(r io.Reader, f func(io.Reader) error) error {
	z, ok := inflaters.Get().(io.ReadCloser)
	if !ok {
		nz, err := zlib.NewReader(r)
		if err != nil {
			return err
		}
		z = nz
	} else if err := z.(zlib.Resetter).Reset(r, nil); err != nil {
		inflaters.Put(z)
		return err
	}
	defer inflaters.Put(z)
	return f(z)
}
