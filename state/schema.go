package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"go.etcd.io/bbolt"

	"limpet/state/atomicfile"
	"limpet/state/frame"
)

// format is a schema and the way to it from older ones.
type format struct {
	version int
	steps   map[int]func(*txn) error // from that schema to the next
}

// current is the schema of this program. A step is added here when it is raised; each runs inside
// the one transaction that also writes the new number.
//
// The number is raised only for what an older program would get wrong. A new member of a record is
// no such thing, as long as it keeps to these rules:
//
//   - It may be absent, and its absence means what it meant before there was the member.
//   - In a Claim, a Record or an Attempt an older program keeps it as it is while it changes the other members (see
//     txn.go). So it must not contradict them: nothing that has to change whenever State or Finished does.
//   - In the meta record an older program drops it with its next write. So it must be possible to compute it again from the
//     records, and its absence must be seen (see frame.Counter.Bytes).
//   - It gets a fixture (testdata/bolt, fixture_test.go): a file of before is read by every later program.
//
// Schema 2 has large objects compressed; those that are there are so when they are written again.
var current = format{version: 2, steps: map[int]func(*txn) error{1: func(*txn) error { return nil }}}

// apply gives a new file its layout and raises an older schema, keeping a copy from before.
// uncounted reports that an older program has written to the file, which counts no bytes: a
// compaction counts them.
func (f format) apply(op *opening, file *file) (uncounted bool, err error) {
	var m frame.Meta
	fresh := false
	err = file.db.View(func(tx *bbolt.Tx) (err error) {
		if k, _ := tx.Cursor().First(); k == nil {
			fresh = true
			return nil
		}
		m, err = view{tx: tx}.meta()
		return err
	})
	switch {
	case err != nil:
		return false, err
	case op.o.ReadOnly && (fresh || m.Schema < f.version):
		return false, fmt.Errorf("lay out or migrate %s: %w", op.path, ErrReadOnly)
	case fresh:
		op.report.Created = true
		err := file.db.Update(func(tx *bbolt.Tx) error { return layout(tx, frame.NewMeta(f.version, 0, now()), now()) })
		if err == nil {
			err = atomicfile.SyncDir(filepath.Dir(op.path))
		}
		return false, err
	case m.Schema > f.version:
		return false, &SchemaError{Have: m.Schema, Want: f.version, Path: op.path}
	case m.Schema == f.version:
		return m.Unmeasured(), nil
	}
	name := op.path + suffixSchemaCopy + strconv.Itoa(m.Schema) + "-" + now().UTC().Format(timeForm)
	if err := file.saveAs(name); err != nil {
		return false, fmt.Errorf("keep a copy before migration: %w", err)
	}
	err = file.db.Update(func(tx *bbolt.Tx) error { return f.raise(tx, op.maxSize) })
	if err != nil {
		return false, fmt.Errorf("migrate state from schema %d to %d: %w", m.Schema, f.version, err)
	}
	op.report.Migrated = name
	op.log.Info("state file was migrated", "path", op.path, "from", m.Schema, "to", f.version, "copy", name)
	return m.Unmeasured(), nil
}

// raise runs the steps from the schema of the file up to the one of the program.
func (f format) raise(tx *bbolt.Tx, maxSize int64) error {
	t, err := beginTxn(tx, hardLimit(maxSize), now())
	if err != nil {
		return err
	}
	for t.m.Schema < f.version {
		step := f.steps[t.m.Schema]
		if step == nil {
			return fmt.Errorf("no step from schema %d", t.m.Schema)
		}
		if err := step(t); err != nil {
			return err
		}
		t.m.Schema++
	}
	return t.finish()
}

// saveAs writes a durable copy of the file.
func (f *file) saveAs(name string) (err error) {
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return frame.Classify(err)
	}
	err = f.db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(&headPlacer{w: out})
		return err
	})
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return frame.Classify(errors.Join(err, os.Remove(name)))
	}
	return atomicfile.SyncDir(filepath.Dir(name))
}
