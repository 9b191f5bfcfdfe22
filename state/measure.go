package state

import (
	"context"

	"go.etcd.io/bbolt"
)

// A file of before, and one that a program of before has written to since, has no count of bytes beside its records. It
// is made anew when the file is opened, once: from then on every write keeps it.

// measure counts the bytes of the buckets that have none counted. It reads those buckets whole.
func (f *file) measure(ctx context.Context) error {
	var m meta
	err := f.db.View(func(tx *bbolt.Tx) (err error) {
		m, err = view{tx: tx}.meta()
		return err
	})
	if err != nil || !m.unmeasured() {
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

func (m meta) unmeasured() bool {
	for _, have := range m.Tallies {
		if have.unmeasured() {
			return true
		}
	}
	return false
}

// measure puts the bytes into the tallies of this transaction. ErrCorrupt when a bucket does not hold what its tally says.
func (t *txn) measure(ctx context.Context) error {
	for b, have := range t.m.Tallies {
		if !have.unmeasured() {
			continue
		}
		var bytes int64
		err := t.whole(ctx, b, func(k []byte, f frame) error {
			bytes += int64(len(k) + frameHeader + len(f.body))
			return nil
		})
		if err != nil {
			return err
		}
		have.Bytes = bytes
		t.m.Tallies[b] = have
	}
	return nil
}
