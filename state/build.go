package state

import (
	"bytes"

	"limpet/state/frame"

	"go.etcd.io/bbolt"
)

// copyBatch is how many bytes of records one transaction of a copy takes.
const copyBatch = 4 << 20

// builder fills a new file with records in large transactions. Its meta record is written last: a file without one was
// never finished.
type builder struct {
	f     *file
	m     frame.Meta
	tx    *bbolt.Tx
	bytes int
}

// newBuilder takes schema and revision from m.
func newBuilder(f *file, m frame.Meta) *builder {
	m.Counters = map[frame.Bucket]frame.Counter{}
	return &builder{f: f, m: m}
}

// add copies one record; the first of two under one key stays. Keys should come in order, then pages are filled.
func (b *builder) add(name frame.Bucket, key []byte, f frame.Frame) error {
	if err := b.begin(); err != nil {
		return err
	}
	bk, err := b.tx.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}
	if bk.Get(key) != nil {
		return nil
	}
	bk.FillPercent = 0.9
	raw := frame.Encode(name, key, f.Body, f.Stamp)
	if err := bk.Put(bytes.Clone(key), raw); err != nil {
		return err
	}
	count := b.m.Counters[name]
	count.Add(key, raw)
	b.m.Counters[name] = count
	if b.bytes += len(key) + len(raw); b.bytes < copyBatch {
		return nil
	}
	return b.commit()
}

func (b *builder) begin() (err error) {
	if b.tx == nil {
		b.tx, err = b.f.db.Begin(true)
	}
	return err
}

func (b *builder) commit() error {
	if b.tx == nil {
		return nil
	}
	tx := b.tx
	b.tx, b.bytes = nil, 0
	return tx.Commit()
}

// finish makes the file complete and durable.
func (b *builder) finish() error {
	if err := b.begin(); err != nil {
		return err
	}
	if err := layout(b.tx, b.m, now()); err != nil {
		return err
	}
	return b.commit()
}

// abort ends the transaction in progress, so that the file can be closed.
func (b *builder) abort() error {
	if b.tx == nil {
		return nil
	}
	tx := b.tx
	b.tx = nil
	return tx.Rollback()
}
