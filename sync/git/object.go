package git

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

// objectID is the name of an object. Only SHA-1 repositories are supported.
type objectID = plumbing.Hash

// kind is the type of an object, with the numbers of the pack format.
type kind = plumbing.ObjectType

const (
	commitKind   = plumbing.CommitObject
	treeKind     = plumbing.TreeObject
	blobKind     = plumbing.BlobObject
	tagKind      = plumbing.TagObject
	ofsDeltaKind = plumbing.OFSDeltaObject
	refDeltaKind = plumbing.REFDeltaObject
)

var (
	// errBadPack is wrapped when what the server sent is not a sound pack.
	errBadPack = errors.New("damaged pack")
	// errDamaged is wrapped when the mirror on disk is not sound.
	errDamaged = errors.New("damaged mirror")
	// errMissing is wrapped when an object is not in the mirror.
	errMissing = errors.New("object is not in the mirror")
)

// parseID reads 40 hex digits in lower or upper case.
func parseID(s string) (objectID, bool) {
	if len(s) != 40 || !plumbing.IsHash(s) {
		return objectID{}, false
	}
	return plumbing.NewHash(s), true
}

// idHasher computes object names one after the other. It notices the known
// SHA-1 collision attacks, as git does, and then gives another name.
type idHasher struct{ h hash.Hash }

func newIDHasher() *idHasher { return &idHasher{hash.New(crypto.SHA1)} }

func (i *idHasher) begin(k kind, size int64) {
	i.h.Reset()
	i.h.Write(k.Bytes())
	var head [24]byte
	b := append(head[:0], ' ')
	b = strconv.AppendInt(b, size, 10)
	i.h.Write(append(b, 0))
}

func (i *idHasher) Write(p []byte) (int, error) { return i.h.Write(p) }

func (i *idHasher) id() (id objectID) {
	i.h.Sum(id[:0])
	return id
}

func (i *idHasher) of(k kind, data []byte) objectID {
	i.begin(k, int64(len(data)))
	i.h.Write(data)
	return i.id()
}

var hashers = sync.Pool{New: func() any { return newIDHasher() }}

// nameOf is the name of an object with this content.
func nameOf(k kind, data []byte) objectID {
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
