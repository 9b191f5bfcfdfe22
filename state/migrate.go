package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"go.etcd.io/bbolt"
)

// apply gives a new file its layout and raises an older schema, keeping a copy from before.
func (f format) apply(op *opening, file *file) error {
	var m meta
	fresh := false
	err := file.db.View(func(tx *bbolt.Tx) (err error) {
		if k, _ := tx.Cursor().First(); k == nil {
			fresh = true
			return nil
		}
		m, err = view{tx: tx}.meta()
		return err
	})
	switch {
	case err != nil:
		return err
	case fresh:
		op.report.Created = true
		err := file.db.Update(func(tx *bbolt.Tx) error { return layout(tx, newMeta(f.version, 0, now()), now()) })
		if err != nil {
			return err
		}
		return syncDir(op.path)
	case m.Schema > f.version:
		return &SchemaError{Have: m.Schema, Want: f.version, Path: op.path}
	case m.Schema == f.version:
		return file.measure(op.ctx)
	}
	name := op.path + kept + strconv.Itoa(m.Schema) + "-" + now().UTC().Format(timeForm)
	if err := file.saveAs(name); err != nil {
		return fmt.Errorf("keep a copy before migration: %w", err)
	}
	err = file.db.Update(func(tx *bbolt.Tx) error { return f.raise(tx, op.maxSize) })
	if err != nil {
		return fmt.Errorf("migrate state from schema %d to %d: %w", m.Schema, f.version, err)
	}
	op.report.Migrated = name
	op.log.Info("state file was migrated", "path", op.path, "from", m.Schema, "to", f.version, "copy", name)
	return nil
}

// raise runs the steps from the schema of the file up to the one of the program.
func (f format) raise(tx *bbolt.Tx, maxSize int64) error {
	t, err := beginTxn(tx, hardLimit(maxSize), now())
	if err != nil {
		return err
	}
	if err := t.measure(context.Background()); err != nil {
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
		return classify(err)
	}
	err = f.db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(out)
		return err
	})
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return classify(errors.Join(err, os.Remove(name)))
	}
	return syncDir(name)
}
