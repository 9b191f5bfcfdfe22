// Package pack reads and writes what a bare repository keeps on disk: packs with their indexes, the objects in
// them, and packed-refs. A pack from a server is not trusted: it is examined object by object, within limits,
// while it is spooled, and every object is checked against its name again when it is read.
package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
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

// inflate reads the content of the object whose header was read last. The caller has
// held the size in the header against a limit.
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
	errShort = errors.New("object is shorter than its header says")
	errDelta = errors.New("malformed delta")
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
