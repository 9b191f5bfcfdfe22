package frame

import (
	"encoding/json"
	"fmt"
	"time"
)

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

// MetaKey is the key of the one record of metaBucket. Its frame and the member "schema" keep their form for ever, so
// that an old program can tell a newer file from a damaged one.
var MetaKey = []byte("meta")

// Counter counts the frames of a bucket, adds up their checksums and measures them with their keys. A missing, doubled or
// stale record changes it, which the checksum of the record alone cannot show.
type Counter struct {
	N     int    `json:"n"`
	Sum   uint64 `json:"sum"`
	Bytes int64  `json:"bytes,omitempty"` // of keys and frames; absent in files of programs that did not count them
}

// Add takes in the frame raw under key, and Remove takes it out again. What is not measured stays so until it is counted anew.
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
	// Revisions begin at the clock in microseconds, so that those of a rebuilt file never repeat those that watchers
	// remember from the old one.
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
