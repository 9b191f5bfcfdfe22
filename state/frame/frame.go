package frame

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strings"
	"syscall"
	"time"

	bolterrors "go.etcd.io/bbolt/errors"
)

// A frame is what stands under every key:
//
//	offset 0   1 byte   version of the frame, 1
//	       1   4 bytes  length of the body, big endian
//	       5   8 bytes  stamp, big endian: revision of an object, else milliseconds since 1970 of the write
//	      13   4 bytes  CRC-32C, big endian, of bytes 0-12, the body, the bucket's name, a zero byte and the key
//	      17            body, JSON or the caller's own bytes
//
// The checksum covers bucket and key because damage to a page can put a sound value under a wrong
// key. The body comes before them so that a reader that does not know the bucket can try each at
// little cost.
const (
	FrameVersion = 1
	HeaderSize   = 17
	frameCRC     = 13

	// MaxBody is the largest body that is written, and so the largest length that is believed when
	// reading.
	MaxBody = 64 << 20
)

var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

type Frame struct {
	Stamp uint64
	Sum   uint32
	Body  []byte // aliases the encoded bytes
}

// Encode returns the frame of a body that stands under key in bucket b.
func Encode(b Bucket, key, body []byte, stamp uint64) []byte {
	raw := make([]byte, HeaderSize+len(body))
	raw[0] = FrameVersion
	binary.BigEndian.PutUint32(raw[1:], uint32(len(body)))
	binary.BigEndian.PutUint64(raw[5:], stamp)
	copy(raw[HeaderSize:], body)
	binary.BigEndian.PutUint32(raw[frameCRC:], KeySum(ContentSum(raw), b, key))
	return raw
}

// Decode verifies a frame that was found under key in bucket b. Any error is ErrCorrupt.
func Decode(b Bucket, key, raw []byte) (Frame, error) {
	if err := Shape(raw); err != nil {
		return Frame{}, Corrupt("%s %q: %s", b, key, err)
	}
	f := Frame{
		Stamp: binary.BigEndian.Uint64(raw[5:]),
		Sum:   Checksum(raw),
		Body:  raw[HeaderSize:],
	}
	if KeySum(ContentSum(raw), b, key) != f.Sum {
		return Frame{}, Corrupt("%s %q: checksum differs", b, key)
	}
	return f, nil
}

// ShapeError is why bytes cannot be a frame at all.
type ShapeError string

func (e ShapeError) Error() string { return string(e) }

func Shape(raw []byte) error {
	switch {
	case len(raw) < HeaderSize:
		return ShapeError("shorter than a frame")
	case raw[0] != FrameVersion:
		return ShapeError("unknown frame version")
	}
	if n := binary.BigEndian.Uint32(raw[1:]); n > MaxBody || int(n) != len(raw)-HeaderSize {
		return ShapeError("length differs")
	}
	return nil
}

// Checksum returns the checksum that a frame claims, 0 for what is too short to be one.
func Checksum(raw []byte) uint32 {
	if len(raw) < HeaderSize {
		return 0
	}
	return binary.BigEndian.Uint32(raw[frameCRC:])
}

// ContentSum is the part of the checksum that does not depend on where the frame stands.
func ContentSum(raw []byte) uint32 {
	sum := crc32.Update(0, Castagnoli, raw[:frameCRC])
	return crc32.Update(sum, Castagnoli, raw[HeaderSize:])
}

// KeySum carries the checksum over the bucket and key.
func KeySum(sum uint32, b Bucket, key []byte) uint32 {
	sum = crc32.Update(sum, Castagnoli, []byte(b))
	sum = crc32.Update(sum, Castagnoli, []byte{0})
	return crc32.Update(sum, Castagnoli, key)
}

var (
	// ErrFull is returned by writes that would take the file beyond its size cap. Prune or trim the
	// history and write again.
	ErrFull = errors.New("state file has reached its size limit")

	// ErrReadOnly is returned when the file system or its permissions forbid writing (EROFS, EACCES,
	// EPERM).
	ErrReadOnly = errors.New("state cannot be written")

	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("state is closed")

	// ErrCorrupt is returned when a record or page does not carry the checksum it was written with.
	// The file is verified and rebuilt at the next start.
	ErrCorrupt = errors.New("state file is damaged")

	// ErrForeign is returned by Open when the file is a sound bbolt file of some other program, or
	// text. It is not touched.
	ErrForeign = errors.New("not a limpet state file")
)

// SchemaError reports that the file was written by a newer program. The file has not been touched.
type SchemaError struct {
	Have int // of the file
	Want int // newest that this program knows
	Path string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("state file %s has schema %d, this program knows up to %d", e.Path, e.Have, e.Want)
}

// Corrupt makes an ErrCorrupt with its reason.
func Corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Classify gives the errors of the operating system and of bbolt the sentinel that callers decide
// by.
func Classify(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrReadOnly), errors.Is(err, ErrFull), errors.Is(err, ErrCorrupt), errors.Is(err, syscall.ENOSPC):
		return err
	case errors.Is(err, bolterrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG): // a quota and a limit of file sizes are a small disk
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return ErrClosed
	}
	// bbolt flattens the error of a failed growth into text.
	for _, known := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EFBIG} {
		if !errors.Is(err, known) && strings.Contains(err.Error(), known.Error()) {
			return Classify(fmt.Errorf("%w (%s)", known, err))
		}
	}
	return err
}

// Bucket is the name of a top-level bucket of the file. There are no nested ones.
type Bucket string

const (
	MetaBucket Bucket = "limpet"   // one record: schema, revision, counters
	Claims     Bucket = "claims"   // job UID -> Claim
	History    Bucket = "history"  // 8-byte big-endian finish in ms + job UID -> Record
	UIDs       Bucket = "uids"     // job UID -> key of its record
	Snapshots  Bucket = "snapshot" // kind -> bytes
	Facts      Bucket = "facts"    // key -> bytes
	Secrets    Bucket = "secrets"  // name -> sealed bytes
	Objects    Bucket = "objects"  // resource 0 namespace 0 name -> JSON of the object
)

// DataBuckets are all that hold records of callers.
var DataBuckets = []Bucket{Claims, History, UIDs, Snapshots, Facts, Secrets, Objects}

// MetaKey is the key of the one record of metaBucket. Its frame and the member "schema" keep their
// form for ever, so that an old program can tell a newer file from a damaged one.
var MetaKey = []byte("meta")

// Counter counts the frames of a bucket, adds up their checksums and measures them with their keys.
// A missing, doubled or stale record changes it, which the checksum of the record alone cannot
// show.
type Counter struct {
	N     int    `json:"n"`
	Sum   uint64 `json:"sum"`
	Bytes int64  `json:"bytes,omitempty"` // of keys and frames; absent in files of programs that did not count them
}

// Add takes in the frame raw under key, and Remove takes it out again. What is not measured stays
// so until it is counted anew.
func (t *Counter) Add(key, raw []byte) {
	if !t.Unmeasured() {
		t.Bytes += int64(len(key) + len(raw))
	}
	t.N++
	t.Sum += uint64(Checksum(raw))
}

func (t *Counter) Remove(key, raw []byte) {
	if !t.Unmeasured() {
		t.Bytes -= int64(len(key) + len(raw))
	}
	t.N--
	t.Sum -= uint64(Checksum(raw))
}

// AddFrame takes in a frame that was read and verified.
func (t *Counter) AddFrame(key []byte, f Frame) {
	t.N++
	t.Sum += uint64(f.Sum)
	t.Bytes += int64(len(key) + HeaderSize + len(f.Body))
}

// Unmeasured reports that the bytes were not counted yet.
func (t Counter) Unmeasured() bool { return t.N > 0 && t.Bytes == 0 }

// Covers reports that met, the counter of all that was found, is what t promises.
func (t Counter) Covers(met Counter) bool {
	return t.N == met.N && t.Sum == met.Sum && (t.Bytes == met.Bytes || t.Unmeasured())
}

// Meta is the record that every write transaction renews.
type Meta struct {
	Schema   int                `json:"schema"`
	Created  time.Time          `json:"created"`
	Seq      uint64             `json:"seq"`      // number of the transaction, to tell the newer of two copies
	Revision uint64             `json:"revision"` // last revision given to an object
	Counters map[Bucket]Counter `json:"tallies"`
}

func NewMeta(version int, revision uint64, now time.Time) Meta {
	// Revisions begin at the clock in microseconds, so that those of a rebuilt file never repeat those
	// that watchers remember from the old one.
	return Meta{Schema: version, Created: now.UTC(), Revision: max(revision, uint64(now.UnixMicro())), Counters: map[Bucket]Counter{}}
}

func DecodeMeta(raw []byte) (Meta, error) {
	f, err := Decode(MetaBucket, MetaKey, raw)
	if err != nil {
		return Meta{}, err
	}
	var m Meta
	if err := json.Unmarshal(f.Body, &m); err != nil {
		return Meta{}, Corrupt("%s: %s", MetaBucket, err)
	}
	if m.Counters == nil {
		m.Counters = map[Bucket]Counter{}
	}
	return m, nil
}

func (m Meta) Encode(now time.Time) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode meta record: %w", err)
	}
	return Encode(MetaBucket, MetaKey, body, uint64(now.UnixMilli())), nil
}

// Unmeasured reports whether a bucket has records whose bytes were not counted.
func (m Meta) Unmeasured() bool {
	for _, have := range m.Counters {
		if have.Unmeasured() {
			return true
		}
	}
	return false
}
