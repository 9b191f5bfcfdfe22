package state

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"limpet/state/frame"
)

// view reads verified records inside one bbolt transaction. What it returns aliases the file's
// memory map and is only valid inside that transaction, unless a method is documented to copy.
type view struct {
	tx *bbolt.Tx
	// touched is nil in transactions that end with their file.
	touched *touched
}

// bucket returns a bucket. All are made with the file: a missing one is damage, which repair.Guard
// turns into an error.
func (v view) bucket(b frame.Bucket) *bbolt.Bucket {
	bk := v.tx.Bucket([]byte(b))
	if bk == nil {
		panic("bucket " + b + " is missing")
	}
	return bk
}

// get returns the frame under key, ok = false when there is none.
func (v view) get(b frame.Bucket, key []byte) (f frame.Frame, ok bool, err error) {
	raw := v.bucket(b).Get(key)
	if raw == nil {
		return frame.Frame{}, false, nil
	}
	v.touched.add(v.tx, max(len(raw), pageOfRecord))
	f, err = frame.Decode(b, key, raw)
	return f, err == nil, err
}

// checkEvery is how many records are read between two checks of the context.
const checkEvery = 256

// A visit sees a record and reports whether it wants more.
type visit func(key []byte, f frame.Frame) (bool, error)

// scan visits every record whose key begins with prefix and is not below from, in key order.
func (v view) scan(ctx context.Context, b frame.Bucket, prefix, from []byte, fn visit) error {
	if bytes.Compare(from, prefix) < 0 {
		from = prefix
	}
	c := v.bucket(b).Cursor()
	k, raw := c.Seek(from)
	return v.walk(ctx, b, k, raw, c.Next, func(k []byte) bool { return bytes.HasPrefix(k, prefix) }, fn)
}

// scanBack visits the records from below high (nil = the end) down to low.
func (v view) scanBack(ctx context.Context, b frame.Bucket, low, high []byte, fn visit) error {
	c := v.bucket(b).Cursor()
	k, raw := c.Last()
	if high != nil {
		if above, _ := c.Seek(high); above != nil {
			k, raw = c.Prev()
		} else {
			k, raw = c.Last()
		}
	}
	return v.walk(ctx, b, k, raw, c.Prev, func(k []byte) bool { return bytes.Compare(k, low) >= 0 }, fn)
}

// walk visits the record that a cursor stands at and those that step leads to, as long as their
// keys are in range.
func (v view) walk(ctx context.Context, b frame.Bucket, k, raw []byte, step func() (k, raw []byte),
	in func(key []byte) bool, fn visit) error {
	for n := 1; k != nil && in(k); k, raw = step() {
		if n++; n%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f, err := frame.Decode(b, k, raw)
		if err != nil {
			return err
		}
		more, err := fn(k, f)
		v.touched.add(v.tx, len(k)+len(raw))
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// scanVerified calls fn for every record of a bucket and compares what it met with the counter, so
// that a record that damage hid is an error and not an absence.
func (v view) scanVerified(ctx context.Context, b frame.Bucket, fn func(key []byte, f frame.Frame) error) error {
	m, err := v.meta()
	if err != nil {
		return err
	}
	var met frame.Counter
	err = v.scan(ctx, b, nil, nil, func(k []byte, f frame.Frame) (bool, error) {
		met.AddFrame(k, f)
		return true, fn(k, f)
	})
	if err == nil && !m.Counters[b].Covers(met) {
		return frame.Corrupt("bucket %s has %d records and another checksum than the %d that were written", b, met.N, m.Counters[b].N)
	}
	return err
}

func (v view) meta() (frame.Meta, error) {
	return frame.DecodeMeta(v.bucket(frame.MetaBucket).Get(frame.MetaKey))
}

// txn writes records inside the writer's transaction and keeps the counters.
type txn struct {
	view
	m      frame.Meta
	puts   int           // puts and deletes so far
	room   int64         // bytes that may still be added below the size cap
	grown  int64         // bytes that were added, less those removed; without those of jobs that run or end
	ending bool          // the records now written are those of a job that ends: neither cap nor growth count
	now    time.Time     // one time for the whole transaction
	events []ObjectEvent // of this transaction, in order
	log    journal       // for crash tests
}

// beginTxn prepares a transaction of db; limit is the size cap in bytes.
func beginTxn(tx *bbolt.Tx, limit int64, now time.Time) (*txn, error) {
	t := &txn{view: view{tx: tx}, now: now}
	var err error
	if t.m, err = t.meta(); err != nil {
		return nil, err
	}
	t.room = limit - (tx.Size() - (&file{db: tx.DB()}).free())
	return t, nil
}

// put writes body under key with the time as its stamp.
func (t *txn) put(b frame.Bucket, key, body []byte) error {
	return t.putStamped(b, key, body, uint64(t.now.UnixMilli()))
}

// putJSON writes v as JSON under key.
func (t *txn) putJSON(b frame.Bucket, key []byte, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s record: %w", b, err)
	}
	return t.put(b, key, body)
}

// putStamped writes body under key with the given stamp. ErrFull when the file's cap does not allow
// it; records of claims have the reserve to themselves, because a job that runs must be able to
// end.
func (t *txn) putStamped(b frame.Bucket, key, body []byte, stamp uint64) error {
	if len(body) > frame.MaxBody {
		return fmt.Errorf("write %s record of %d bytes: larger than %d", b, len(body), frame.MaxBody)
	}
	if len(key) == 0 || len(key) > bbolt.MaxKeySize {
		return fmt.Errorf("write %s record: key of %d bytes", b, len(key))
	}
	bk := t.bucket(b)
	old := bk.Get(key)
	grown := int64(frame.HeaderSize + len(body) - len(old))
	if old == nil {
		grown += int64(len(key))
	}
	if grown > 0 && grown > t.room && b != frame.Claims && !t.ending {
		return ErrFull
	}
	raw := frame.Encode(b, key, body, stamp)
	count := t.m.Counters[b]
	if old != nil {
		count.Remove(key, old)
	}
	count.Add(key, raw)
	if b == frame.History {
		// Keys grow with time, so that a full page is never written to again.
		bk.FillPercent = 0.9
	}
	t.puts++
	if err := bk.Put(key, raw); err != nil {
		return fmt.Errorf("write %s record: %w", b, err)
	}
	t.log.put(b, key, body)
	t.m.Counters[b] = count
	t.room -= grown
	if b != frame.Claims && !t.ending {
		t.grown += grown
	}
	return nil
}

// remove deletes key if it is there. The record itself may be damaged.
func (t *txn) remove(b frame.Bucket, key []byte) error {
	bk := t.bucket(b)
	old := bk.Get(key)
	if old == nil {
		return nil
	}
	count := t.m.Counters[b]
	count.Remove(key, old)
	freed := int64(len(key) + len(old)) // old is gone after the delete
	t.puts++
	if err := bk.Delete(key); err != nil {
		return fmt.Errorf("delete %s record: %w", b, err)
	}
	t.log.remove(b, key)
	t.m.Counters[b] = count
	t.grown -= freed
	return nil
}

// finish writes the meta record; nothing may be written after it.
func (t *txn) finish() error {
	t.m.Seq++
	raw, err := t.m.Encode(t.now)
	if err != nil {
		return err
	}
	return t.bucket(frame.MetaBucket).Put(frame.MetaKey, raw)
}

// layout makes all buckets and the meta record of a new file.
func layout(tx *bbolt.Tx, m frame.Meta, now time.Time) error {
	for _, b := range append([]frame.Bucket{frame.MetaBucket}, frame.DataBuckets...) {
		if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
			return fmt.Errorf("create bucket %s: %w", b, err)
		}
	}
	return (&txn{view: view{tx: tx}, m: m, now: now}).finish()
}

// jsonFields returns the names of the members of T in JSON.
func jsonFields[T any]() map[string]bool {
	names := map[string]bool{}
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

var claimFields, recordFields = jsonFields[Claim](), jsonFields[Record]()

// encodeOver returns v as JSON with those members of old, the body that it replaces (nil = none),
// that are not among the known ones: a newer program of the same schema may have written them, and
// a later upgrade needs them.
func encodeOver(b frame.Bucket, v any, old []byte, known map[string]bool) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", b, err)
	}
	var extra map[string]json.RawMessage
	if old == nil || json.Unmarshal(old, &extra) != nil {
		return body, nil
	}
	maps.DeleteFunc(extra, func(name string, _ json.RawMessage) bool { return known[name] })
	if len(extra) == 0 {
		return body, nil
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("encode %s record: %w", b, err)
	}
	maps.Copy(all, extra)
	return json.Marshal(all)
}
