package state

import (
	"encoding/json"
	"fmt"
	"time"
)

// bucket is the name of a top-level bucket of the file. There are no nested ones.
type bucket string

const (
	metaBucket   bucket = "limpet"   // one record: schema, revision, tallies
	claimBucket  bucket = "claims"   // job UID -> Claim
	recordBucket bucket = "history"  // 8-byte big-endian finish in ms + job UID -> Record
	uidBucket    bucket = "uids"     // job UID -> key of its record
	snapBucket   bucket = "snapshot" // kind -> bytes
	factBucket   bucket = "facts"    // key -> bytes
	secretBucket bucket = "secrets"  // name -> sealed bytes
	objectBucket bucket = "objects"  // resource 0 namespace 0 name -> JSON of the object
)

// dataBuckets are all that hold records of callers.
var dataBuckets = []bucket{claimBucket, recordBucket, uidBucket, snapBucket, factBucket, secretBucket, objectBucket}

// metaKey is the key of the one record of metaBucket. Its frame and the member "schema" keep their form for ever, so
// that an old program can tell a newer file from a damaged one.
var metaKey = []byte("meta")

// tally counts the frames of a bucket, adds up their checksums and measures them with their keys. A missing, doubled or
// stale record changes it, which the checksum of the record alone cannot show.
type tally struct {
	N     int    `json:"n"`
	Sum   uint64 `json:"sum"`
	Bytes int64  `json:"bytes,omitempty"` // of keys and frames; absent beside records in a file of before there was this member
}

// add takes in the frame raw under key, and remove takes it out again.
func (t *tally) add(key, raw []byte) {
	t.N++
	t.Sum += uint64(frameSum(raw))
	t.Bytes += int64(len(key) + len(raw))
}

func (t *tally) remove(key, raw []byte) {
	t.N--
	t.Sum -= uint64(frameSum(raw))
	t.Bytes -= int64(len(key) + len(raw))
}

// meet takes in a frame that was read and verified.
func (t *tally) meet(key []byte, f frame) {
	t.N++
	t.Sum += uint64(f.sum)
	t.Bytes += int64(len(key) + frameHeader + len(f.body))
}

// unmeasured says that the bytes were not counted yet.
func (t tally) unmeasured() bool { return t.N > 0 && t.Bytes == 0 }

// covers says that met, the tally of all that was found, is what t promises.
func (t tally) covers(met tally) bool {
	return t.N == met.N && t.Sum == met.Sum && (t.Bytes == met.Bytes || t.unmeasured())
}

// meta is the record that every write transaction renews.
type meta struct {
	Schema   int              `json:"schema"`
	Created  time.Time        `json:"created"`
	Seq      uint64           `json:"seq"`      // number of the transaction, to tell the newer of two copies
	Revision uint64           `json:"revision"` // last revision given to an object
	Tallies  map[bucket]tally `json:"tallies"`
}

// format is a schema and the way to it from older ones.
type format struct {
	version int
	steps   map[int]func(*txn) error // from that schema to the next
}

// current is the schema of this program. A step is added here when it is raised; each runs inside the one transaction
// that also writes the new number.
//
// The number is raised only for what an older program would get wrong. A new member of a record is no such thing, as
// long as it keeps to these rules:
//
//   - It may be absent, and its absence means what it meant before there was the member.
//   - In a Claim, a Record or an Attempt an older program keeps it as it is while it changes the other members (see
//     members.go). So it must not contradict them: nothing that has to change whenever State or Finished does.
//   - In the meta record an older program drops it with its next write. So it must be possible to make it anew from the
//     records, and its absence must be seen (see tally.Bytes and measure).
//   - It gets a fixture (testdata/bolt, fixture_test.go): a file of before is read by every later program.
var current = format{version: 1}

func newMeta(version int, revision uint64, now time.Time) meta {
	// Revisions begin at the clock in microseconds, so that those of a rebuilt file never repeat those that watchers
	// remember from the old one.
	return meta{Schema: version, Created: now.UTC(), Revision: max(revision, uint64(now.UnixMicro())), Tallies: map[bucket]tally{}}
}

func decodeMeta(raw []byte) (meta, error) {
	f, err := decodeFrame(metaBucket, metaKey, raw)
	if err != nil {
		return meta{}, err
	}
	var m meta
	if err := json.Unmarshal(f.body, &m); err != nil {
		return meta{}, corrupt("%s: %s", metaBucket, err)
	}
	if m.Tallies == nil {
		m.Tallies = map[bucket]tally{}
	}
	return m, nil
}

func (m meta) encode(now time.Time) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode meta record: %w", err)
	}
	return encodeFrame(metaBucket, metaKey, body, uint64(now.UnixMilli())), nil
}
