package state

import (
	"context"

	"limpet/state/frame"

	"go.etcd.io/bbolt"
)

// A file of before, and one that a program of before has written to since, has no count of bytes beside its records. It
// is made anew when the file is opened, once: from then on every write keeps it.

// measure counts the bytes of the buckets that have none counted. It reads those buckets whole.
func (f *file) measure(ctx context.Context) error {
	var m frame.Meta
	err := f.db.View(func(tx *bbolt.Tx) (err error) {
		m, err = view{tx: tx}.meta()
		return err
	})
	if err != nil || !m.Unmeasured() {
		return err
	}
	return f.db.Update(func(tx *bbolt.Tx) error {
		t, err := beginTxn(tx, 0, now())
		if err != nil {
			return err
		}
		if err := t.measure(ctx); err != nil {
			return err
		}
		return t.finish()
	})
}

// measure puts the bytes into the tallies of this transaction. ErrCorrupt when a bucket does not hold what its tally says.
func (t *txn) measure(ctx context.Context) error {
	for b, have := range t.m.Counters {
		if !have.Unmeasured() {
			continue
		}
		var bytes int64
		err := t.whole(ctx, b, func(k []byte, f frame.Frame) error {
			bytes += int64(len(k) + frame.HeaderSize + len(f.Body))
			return nil
		})
		if err != nil {
			return err
		}
		have.Bytes = bytes
		t.m.Counters[b] = have
	}
	return nil
}
