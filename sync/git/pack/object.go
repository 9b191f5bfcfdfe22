// Package pack reads and writes what a bare repository keeps on disk: packs with their indexes, the
// objects in them, and packed-refs. A pack from a server is not trusted: it is examined object by
// object, within limits, while it is spooled, and every object is checked against its name again
// when it is read.
package pack

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"strings"
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
func (r *objectReader) header(file io.ReaderAt, offset int64) (packfile.ObjectHeader, error) {
	r.buf.Reset(io.NewSectionReader(file, offset, math.MaxInt64-offset))
	return r.entryHeader(offset)
}

// entryHeader reads what is before the content of the next object, which is at an offset.
func (r *objectReader) entryHeader(offset int64) (h packfile.ObjectHeader, err error) {
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

// open begins the content of an object.
func (r *objectReader) open(from io.Reader) (err error) {
	if r.z != nil {
		return r.z.(zlib.Resetter).Reset(from, nil)
	}
	r.z, err = zlib.NewReader(from)
	return err
}

// head returns the first n bytes of the content of the object whose header was read last. An
// inflater returns nothing before its window of 32 KiB is full or its input ends. So it gets, first,
// no more input than a few bytes of content can need.
func (r *objectReader) head(n int64) ([]byte, error) {
	head := make([]byte, n)
	few, _ := r.buf.Peek(headInput)
	if err := r.open(bytes.NewReader(few)); err == nil {
		if _, err = io.ReadFull(r.z, head); err == nil {
			return head, nil
		}
	}
	if err := r.open(r.buf); err != nil {
		return nil, err
	}
	_, err := io.ReadFull(r.z, head)
	return head, err
}

// inflate reads the content of the object whose header was read last. The caller has held the size
// in it against a limit.
func (r *objectReader) inflate(h packfile.ObjectHeader) ([]byte, error) {
	out := buffer(h.Length)
	if err := r.inflateInto(out); err != nil {
		return nil, err
	}
	return out, nil
}

// inflateInto fills out with the whole content of the object whose header was read last.
func (r *objectReader) inflateInto(out []byte) error {
	if err := r.open(r.buf); err != nil {
		return err
	}
	_, err := io.ReadFull(r.z, out)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errShort
	}
	if err != nil {
		return err
	}
	return r.ended()
}

// copyTo writes the whole content of the object whose header was read last, of n bytes.
func (r *objectReader) copyTo(to io.Writer, n int64) error {
	if err := r.open(r.buf); err != nil {
		return err
	}
	_, err := io.CopyN(to, r.z, n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errShort
	}
	if err != nil {
		return err
	}
	return r.ended()
}

// ended returns an error unless the content is at its end. It reads the checksum.
func (r *objectReader) ended() error {
	_, err := io.ReadFull(r.z, make([]byte, 1))
	switch err {
	case io.EOF:
		return nil
	case nil:
		return packfile.ErrInflatedSizeMismatch
	}
	return err
}

var (
	errShort  = errors.New("object is shorter than its header says")
	errDelta  = errors.New("malformed delta")
	errHeader = errors.New("malformed header of an object")
)

// deltaHead is how many bytes of a delta hold both of its sizes, and headInput how many compressed
// bytes hold these in most deltas: the code tables before them have 40 to 100, at most 600.
const (
	deltaHead = 20
	headInput = 192
)

// deltaSize is the size of the object that a delta makes, from the head of the delta.
func deltaSize(delta []byte) (int64, error) {
	_, n := binary.Uvarint(delta)
	size, m := binary.Uvarint(delta[max(n, 0):])
	if n <= 0 || m <= 0 || size > math.MaxInt64 {
		return 0, errDelta
	}
	return int64(size), nil
}

// patch fills out with what a delta makes of a base.
func patch(out, base, delta []byte) error {
	of, n := binary.Uvarint(delta)
	size, m := binary.Uvarint(delta[max(n, 0):])
	if n <= 0 || m <= 0 || of != uint64(len(base)) || size != uint64(len(out)) {
		return errDelta
	}
	for delta = delta[n+m:]; len(delta) > 0; {
		op := delta[0]
		delta = delta[1:]
		from, count := delta, int(op)
		if op&0x80 != 0 {
			at := 0
			at, delta = copyOperand(delta, op, 4)
			count, delta = copyOperand(delta, op>>4, 3)
			if count == 0 {
				count = 1 << 16
			}
			if at < 0 || count < 0 || at > len(base) {
				return errDelta
			}
			from = base[at:]
		} else {
			delta = delta[min(count, len(delta)):]
		}
		if count == 0 || count > len(from) || count > len(out) {
			return errDelta
		}
		copy(out, from[:count])
		out = out[count:]
	}
	if len(out) > 0 {
		return errDelta
	}
	return nil
}

// copyOperand reads a number of a copy whose bytes, from the lowest on, are there where a bit of op is
// set. It is -1 when the delta ends before.
func copyOperand(delta []byte, op byte, bytes int) (n int, rest []byte) {
	for i := range bytes {
		if op>>i&1 == 0 {
			continue
		}
		if len(delta) == 0 {
			return -1, nil
		}
		n |= int(delta[0]) << (8 * i)
		delta = delta[1:]
	}
	return n, delta
}

// Commit is a parsed commit object.
type Commit struct {
	Tree    ID
	Parents []ID
	Author  string // the line, without "author "
	Message string
}

// maxParents bounds what a hostile commit can make us follow.
const maxParents = 1000

// ParseCommit reads a raw commit.
func ParseCommit(data []byte) (Commit, error) {
	var c Commit
	head, message, _ := bytes.Cut(data, []byte("\n\n"))
	c.Message = string(message)
	for i, line := range strings.Split(string(head), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case i == 0:
			id, ok := ParseID(value)
			if key != "tree" || !ok {
				return c, errors.New("malformed commit: it names no tree")
			}
			c.Tree = id
		case key == "parent":
			id, ok := ParseID(value)
			if !ok || len(c.Parents) == maxParents {
				return c, errors.New("malformed commit: its parents cannot be read")
			}
			c.Parents = append(c.Parents, id)
		case key == "author":
			c.Author = value
		}
	}
	return c, nil
}

// MaxTags is how many tags of tags are followed: people make none, or one by mistake.
const MaxTags = 8

// ParseTag reads what a raw tag object points to.
func ParseTag(data []byte) (target ID, err error) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	text, ok := bytes.CutPrefix(line, []byte("object "))
	if target, valid := ParseID(string(text)); ok && valid {
		return target, nil
	}
	return target, errors.New("malformed tag: it names no object")
}

// Peel returns the object that a tag leads to, and the object itself where it is no tag.
func (s *Store) Peel(id ID) (ID, error) {
	for range MaxTags {
		kind, data, err := s.Read(id, s.Limit)
		if err != nil || kind != TagKind {
			return id, err
		}
		if id, err = ParseTag(data); err != nil {
			return id, err
		}
	}
	return id, nil
}

// Tagged checks that a tag object is there and points to a commit. Errors wrap ErrIncomplete or
// ErrBadPack.
func (s *Store) Tagged(tag, commit ID) error {
	for range MaxTags {
		k, data, err := s.Read(tag, s.Limit)
		switch {
		case errors.Is(err, ErrMissing):
			return fmt.Errorf("%w: tag %s", ErrIncomplete, tag)
		case err != nil:
			return err
		case k != TagKind:
			return fmt.Errorf("%w: the tag ends at the %s %s, not at commit %s", ErrBadPack, k, tag, commit)
		}
		if tag, err = ParseTag(data); err != nil {
			return fmt.Errorf("%w: %w", ErrBadPack, err)
		}
		if tag == commit {
			return nil
		}
	}
	return fmt.Errorf("%w: tags of tags have no end", ErrBadPack)
}

// Modes of tree entries.
const (
	ModeTree      = 0o40000
	ModeFile      = 0o100644
	ModeGroupFile = 0o100664 // written by git of 2005
	ModeExec      = 0o100755
	ModeLink      = 0o120000
	ModeSubmodule = 0o160000
)

// TreeEntry is one entry of a raw tree object.
type TreeEntry struct {
	Mode uint32
	Name string
	ID   ID
}

var errTree = errors.New("malformed tree object")

// ParseTree reads a raw tree. It judges the form only; names pass the rule of path.go afterwards.
func ParseTree(data []byte) ([]TreeEntry, error) {
	var out []TreeEntry
	for len(data) > 0 {
		head, rest, ended := bytes.Cut(data, []byte{0})
		digits, name, ok := strings.Cut(string(head), " ")
		mode, err := strconv.ParseUint(digits, 8, 32)
		if !ended || !ok || err != nil || len(digits) > 7 || len(rest) < len(ID{}) {
			return out, errTree
		}
		out = append(out, TreeEntry{Mode: uint32(mode), Name: name, ID: ID(rest[:len(ID{})])})
		data = rest[len(ID{}):]
	}
	return out, nil
}

// SortKey orders a tree as git does: a directory as if it had a slash at its end.
func (t TreeEntry) SortKey() string {
	if t.Mode == ModeTree {
		return t.Name + "/"
	}
	return t.Name
}

// TreeText is a raw tree.
func TreeText(entries []TreeEntry) (out []byte) {
	for _, t := range entries {
		out = fmt.Appendf(out, "%o %s\x00", t.Mode, t.Name)
		out = append(out, t.ID[:]...)
	}
	return out
}

// Limits bound what one remote may make this process receive, hold and walk. Zero fields take the
// defaults.
type Limits struct {
	PackBytes     int64 // of one fetch, on the wire
	RefsBytes     int64 // of the advertised refs, on the wire
	ObjectBytes   int64 // of any one object, inflated
	InflatedBytes int64 // of all objects of one fetch together
	Objects       int   // in one fetch
	TreeDepth     int   // directories below the root
	PathBytes     int   // of a whole path
	TreeEntries   int   // files and directories of one tree, all levels
	LargeObject   int64 // of any one file in Git LFS
	LargeBytes    int64 // of all that one pull takes from Git LFS
}

// DefaultLimits suit a small host: the largest repository that was measured
// (20,000 dashboards, 522 MB of JSON) is a 54 MB pack.
var DefaultLimits = Limits{
	PackBytes:     512 << 20,
	RefsBytes:     32 << 20,
	ObjectBytes:   32 << 20,
	InflatedBytes: 2 << 30,
	Objects:       1_000_000,
	TreeDepth:     32,
	PathBytes:     1024,
	TreeEntries:   500_000,
	LargeObject:   256 << 20,
	LargeBytes:    1 << 30,
}

// Or fills the zero fields of l from d.
func (l Limits) Or(d Limits) Limits {
	return Limits{
		PackBytes:     cmp.Or(l.PackBytes, d.PackBytes),
		RefsBytes:     cmp.Or(l.RefsBytes, d.RefsBytes),
		ObjectBytes:   cmp.Or(l.ObjectBytes, d.ObjectBytes),
		InflatedBytes: cmp.Or(l.InflatedBytes, d.InflatedBytes),
		Objects:       cmp.Or(l.Objects, d.Objects),
		TreeDepth:     cmp.Or(l.TreeDepth, d.TreeDepth),
		PathBytes:     cmp.Or(l.PathBytes, d.PathBytes),
		TreeEntries:   cmp.Or(l.TreeEntries, d.TreeEntries),
		LargeObject:   cmp.Or(l.LargeObject, d.LargeObject),
		LargeBytes:    cmp.Or(l.LargeBytes, d.LargeBytes),
	}
}

// Objects are many and short-lived: the buffers of those of a file's size are used again, so that
// there is less garbage to collect. These bound their sizes, as powers of two.
const (
	smallestBuffer = 12
	largestBuffer  = 20
)

var buffers [largestBuffer + 1]sync.Pool // of *[]byte, by the logarithm of their capacity

// buffer returns a buffer of a size. There may be something in it.
func buffer(size int64) []byte {
	class := bits.Len64(uint64(max(size, 1) - 1))
	if class < smallestBuffer || class > largestBuffer {
		return make([]byte, size)
	}
	if b, ok := buffers[class].Get().(*[]byte); ok {
		return (*b)[:size]
	}
	return make([]byte, size, 1<<class)
}

// Recycle takes the content of an object back that is not used any more.
func Recycle(b []byte) {
	class := bits.Len64(uint64(cap(b))) - 1
	if class >= smallestBuffer && class <= largestBuffer && cap(b) == 1<<class {
		buffers[class].Put(&b)
	}
}
